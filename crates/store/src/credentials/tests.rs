use super::*;
use crate::location::Place;

fn at(text: &str) -> Location {
    match Place::parse(text) {
        Ok(Place::Object(location)) => location,
        other => panic!("{text}: {other:?}"),
    }
}

fn surroundings(variables: &[(&str, &str)]) -> Surroundings {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Surroundings { variables, maker: String::new() }
}

fn refusal(location: &str, variables: &[(&str, &str)]) -> String {
    match client(&at(location), &surroundings(variables)) {
        Err(StoreError::NoCredentials { location, variables }) => format!("{location}: {variables}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{location} was opened"),
    }
}

#[test]
fn credentials_1_none_is_told_at_once_with_the_variables_that_would_help() {
    for (location, variable) in [
        ("s3://box/run", "AWS_ACCESS_KEY_ID"),
        ("gs://box/run", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://box/run", "AZURE_STORAGE_ACCOUNT_NAME"),
    ] {
        let refused = refusal(location, &[("HOME", "/nonexistent")]);
        assert!(refused.starts_with(location) && refused.contains(variable), "{refused}");
    }
    assert!(refusal("az://box", &[("AZURE_STORAGE_ACCOUNT_NAME", "me")]).contains("AZURE_STORAGE_ACCOUNT_KEY"));
    assert!(refusal("s3://box", &[("AWS_PROFILE", "none"), ("HOME", "/nonexistent")]).contains("AWS_PROFILE"));
}

#[test]
fn the_ordinary_variables_of_each_provider_open_a_bucket() {
    let root = tempfile::tempdir().unwrap();
    let token = root.path().join("token");
    fs::write(&token, "t").unwrap();
    let token = token.to_str().unwrap();
    let keys = [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let azure = [("AZURE_STORAGE_ACCOUNT_NAME", "me"), ("AZURE_STORAGE_ACCOUNT_KEY", "aGVsbG8=")];
    let connection =
        "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=aGVsbG8=;EndpointSuffix=core.windows.net";
    let opened: &[(&str, &[(&str, &str)])] = &[
        ("s3://box", &keys),
        ("s3://box", &[("AWS_WEB_IDENTITY_TOKEN_FILE", token), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")]),
        ("s3://box", &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")]),
        ("s3://box", &[("AWS_SKIP_SIGNATURE", "true")]),
        ("s3://box", &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")]),
        ("gs://box", &[("GOOGLE_SKIP_SIGNATURE", "true")]),
        ("az://box", &azure),
        ("abfss://box@me.dfs.core.windows.net/x", &azure[1..]),
        ("azure://box", &[("AZURE_STORAGE_CONNECTION_STRING", connection)]),
        ("abfs://box", &[("AZURE_STORAGE_USE_EMULATOR", "true")]),
    ];
    for (location, variables) in opened {
        let opened = client(&at(location), &surroundings(variables));
        assert!(opened.is_ok(), "{location} {variables:?}: {}", opened.err().unwrap());
    }
    let mut machine = surroundings(&[]);
    machine.maker = "Amazon EC2\nm5.large".into();
    assert!(client(&at("s3://box"), &machine).is_ok(), "a machine of Amazon has a metadata server");
    machine.variables.insert("AWS_EC2_METADATA_DISABLED".into(), "true".into());
    assert!(client(&at("s3://box"), &machine).is_err());
}

#[test]
fn a_key_file_that_is_not_there_is_told_with_its_location() {
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")];
    let error = client(&at("gs://box/run"), &surroundings(&variables)).err().unwrap().to_string();
    assert!(error.starts_with("cannot open `gs://box/run`: "), "{error}");
}

#[test]
fn a_profile_is_read_as_the_aws_tools_read_it() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(".aws")).unwrap();
    let secrets = "[default]\naws_access_key_id = A\n\n[ work ]\naws_access_key_id=W\naws_secret_access_key = S=\n";
    fs::write(root.path().join(".aws/credentials"), secrets).unwrap();
    let settings =
        "[profile work]\nregion = eu-west-1\ns3 =\n  endpoint_url = http://nested\nendpoint_url = http://own\n";
    fs::write(root.path().join(".aws/config"), settings).unwrap();
    let home = root.path().to_str().unwrap();
    let text = |text: &str| Some(text.to_owned());
    let work = Profile::read(&surroundings(&[("HOME", home), ("AWS_PROFILE", "work")]));
    let expected = Profile {
        key: text("W"),
        secret: text("S="),
        token: None,
        region: text("eu-west-1"),
        endpoint: text("http://own"),
    };
    assert_eq!(work, expected);
    assert_eq!(Profile::read(&surroundings(&[("HOME", home)])).key, text("A"));
    assert!(client(&at("s3://box"), &surroundings(&[("HOME", home), ("AWS_PROFILE", "work")])).is_ok());
}
