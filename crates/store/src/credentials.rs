//! Clients for buckets, made from what the environment and the usual files say of endpoints and credentials.
//!
//! CREDENTIALS-1: whether there are any is decided before the first request, from the environment, the usual files and the
//!   kind of machine; nobody waits for a metadata server that is not there.
//! CREDENTIALS-2: a credential is never in a message.
//! The names of the variables are those of the providers' own tools.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::error::StoreError;
use crate::location::{Kind, Location};

/// For one request, which carries at most one part: long enough for a slow line, short enough to be tried again.
pub(crate) const REQUEST: Duration = Duration::from_secs(120);
const CONNECT: Duration = Duration::from_secs(10);

/// One bucket, as the two halves of a client.
#[derive(Clone)]
pub(crate) struct Client {
    pub objects: Arc<dyn ObjectStore>,
    pub parts: Arc<dyn MultipartStore>,
}

impl Client {
    fn new<S: ObjectStore + MultipartStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { objects: store.clone(), parts: store }
    }
}

/// The variables and the machine that a client is made from.
pub(crate) struct Surroundings {
    pub variables: BTreeMap<String, String>,
    /// What the firmware says of who made the machine.
    pub maker: String,
}

impl Surroundings {
    pub fn of_this_process() -> Self {
        let dmi = |name| fs::read_to_string(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
        let maker = ["sys_vendor", "product_name", "chassis_asset_tag"].map(dmi).concat();
        Self { variables: std::env::vars_os().filter_map(text_pair).collect(), maker }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some())
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.to_lowercase().as_str()))
    }

    fn in_home(&self, path: &str) -> Option<String> {
        fs::read_to_string(format!("{}/{path}", self.get("HOME")?)).ok()
    }

    /// The settings whose names begin so, as the builders know them.
    fn settings<'a, K: std::str::FromStr>(&'a self, prefix: &'static str) -> impl Iterator<Item = (K, &'a str)> {
        let known = move |(name, value): (&'a String, &'a String)| {
            let key = name.starts_with(prefix).then(|| name.to_ascii_lowercase().parse().ok()).flatten()?;
            (!value.is_empty()).then_some((key, value.as_str()))
        };
        self.variables.iter().filter_map(known)
    }
}

/// Those of an environment that say how storage is reached and with which credentials.
pub fn storage_variables<'a>(
    environment: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let names = ["AWS_", "GOOGLE_", "AZURE_", "IDENTITY_", "MSI_"];
    let wanted = environment.into_iter().filter(|(name, _)| names.iter().any(|prefix| name.starts_with(prefix)));
    wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub(crate) fn client(at: &Location, surroundings: &Surroundings) -> Result<Client, StoreError> {
    // The first to ask decides for the whole process; that somebody else was first is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match at.kind {
        Kind::S3 => s3(at, surroundings),
        Kind::Google => google(at, surroundings),
        Kind::Azure => azure(at, surroundings),
    }
}

fn retries() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(10), base: 2. };
    RetryConfig { backoff, max_retries: 10, retry_timeout: Duration::from_secs(180) }
}

fn options() -> ClientOptions {
    ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT)
}

fn no_credentials(at: &Location, variables: &'static str) -> StoreError {
    StoreError::NoCredentials { location: at.shown(), variables }
}

fn refused(at: &Location, error: object_store::Error) -> StoreError {
    StoreError::Remote { what: "open", location: at.shown(), why: crate::requests::explain(&error), missing: false }
}

fn s3(at: &Location, surroundings: &Surroundings) -> Result<Client, StoreError> {
    let mut builder = AmazonS3Builder::new().with_client_options(options()).with_retry(retries());
    for (key, value) in surroundings.settings("AWS_") {
        builder = builder.with_config(key, value);
    }
    let profile = Profile::read(surroundings);
    let pair = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    if let [Some(_), None] | [None, Some(_)] = pair.map(|name| surroundings.get(name))
        && !at.is_anonymous
    {
        return Err(no_credentials(at, "both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
    }
    let has_own = surroundings.any(&pair)
        || surroundings.any(&["AWS_WEB_IDENTITY_TOKEN_FILE"])
        || surroundings.any(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"])
        || surroundings.is_true("AWS_SKIP_SIGNATURE")
        || at.is_anonymous;
    if at.is_anonymous {
        builder = builder.with_skip_signature(true);
    }
    let has_metadata = !surroundings.is_true("AWS_EC2_METADATA_DISABLED")
        && (surroundings.any(&["AWS_METADATA_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT"])
            || surroundings.maker.contains("Amazon EC2"));
    match (&profile.key, &profile.secret) {
        _ if has_own => {}
        (Some(key), Some(secret)) => {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
            if let Some(token) = &profile.token {
                builder = builder.with_token(token);
            }
        }
        _ if has_metadata => {
            if let Some(endpoint) = surroundings.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
                builder = builder.with_metadata_endpoint(endpoint);
            }
        }
        _ => {
            let variables = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_WEB_IDENTITY_TOKEN_FILE \
                             and AWS_ROLE_ARN; AWS_SKIP_SIGNATURE=true for a public bucket";
            return Err(no_credentials(at, variables));
        }
    }
    let region =
        at.parameter("region").or(profile.region.filter(|_| !surroundings.any(&["AWS_REGION", "AWS_DEFAULT_REGION"])));
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let scheme = at.parameter("scheme").unwrap_or_else(|| "https".to_owned());
    let with_scheme = |text: String| if text.contains("://") { text } else { format!("{scheme}://{text}") };
    let from_variables = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
        .iter()
        .find_map(|name| surroundings.get(name).map(str::to_owned));
    let endpoint = at.parameter("endpoint_override").map(with_scheme).or(from_variables).or(profile.endpoint);
    let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if let Some(endpoint) = endpoint {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        builder = if is_plain { builder.with_allow_http(true) } else { builder };
    }
    // Over TLS the line itself guards the bytes; a second hash of everything would only cost time.
    if !is_plain && surroundings.get("AWS_UNSIGNED_PAYLOAD").is_none() {
        builder = builder.with_unsigned_payload(true);
    }
    builder.with_bucket_name(&at.bucket).build().map(Client::new).map_err(|error| refused(at, error))
}

fn google(at: &Location, surroundings: &Surroundings) -> Result<Client, StoreError> {
    let names = [
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_BEARER_TOKEN",
    ];
    let has_some = surroundings.any(&names)
        || surroundings.is_true("GOOGLE_SKIP_SIGNATURE")
        || surroundings.in_home(".config/gcloud/application_default_credentials.json").is_some()
        || surroundings.maker.contains("Google Compute Engine");
    if !has_some {
        let variables = "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to the path of a key file, or log in \
                         with `gcloud auth application-default login`";
        return Err(no_credentials(at, variables));
    }
    let mut builder = GoogleCloudStorageBuilder::new().with_client_options(options()).with_retry(retries());
    for (key, value) in surroundings.settings("GOOGLE_") {
        builder = builder.with_config(key, value);
    }
    builder.with_bucket_name(&at.bucket).build().map(Client::new).map_err(|error| refused(at, error))
}

fn azure(at: &Location, surroundings: &Surroundings) -> Result<Client, StoreError> {
    let mut builder = MicrosoftAzureBuilder::new().with_client_options(options()).with_retry(retries());
    for (key, value) in surroundings.settings("AZURE_") {
        builder = builder.with_config(key, value);
    }
    // Two spellings that Microsoft's own tools read.
    let connection = surroundings.get("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default();
    let from_connection =
        |name| connection.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
    let account = surroundings.get("AZURE_STORAGE_ACCOUNT").or(from_connection("AccountName"));
    let key = surroundings.get("AZURE_STORAGE_KEY").or(from_connection("AccountKey"));
    let (mut has_account, mut has_key) = (at.bucket.contains('@'), false);
    if let Some(account) = account.filter(|_| surroundings.get("AZURE_STORAGE_ACCOUNT_NAME").is_none()) {
        builder = builder.with_account(account);
        has_account = true;
    }
    if let Some(key) = key {
        builder = builder.with_access_key(key);
        has_key = true;
    }
    let emulated = surroundings.is_true("AZURE_STORAGE_USE_EMULATOR");
    has_account |= emulated || surroundings.any(&["AZURE_STORAGE_ACCOUNT_NAME"]);
    let names = [
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_MSI_ENDPOINT",
        "IDENTITY_ENDPOINT",
    ];
    has_key |= emulated
        || surroundings.any(&names)
        || ["AZURE_SKIP_SIGNATURE", "AZURE_USE_AZURE_CLI"].iter().any(|name| surroundings.is_true(name))
        // The tag that every machine of Azure carries.
        || surroundings.maker.contains("7783-7084-3265-9085-8269-3286-77");
    if !has_account || !has_key {
        let variables = "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or \
                         AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID";
        return Err(no_credentials(at, variables));
    }
    builder.with_url(at.bucket_uri()).build().map(Client::new).map_err(|error| refused(at, error))
}

/// What the files of the AWS tools say of one profile.
#[derive(Debug, Default, PartialEq, Eq)]
struct Profile {
    key: Option<String>,
    secret: Option<String>,
    token: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
}

impl Profile {
    fn read(surroundings: &Surroundings) -> Self {
        let name = surroundings.get("AWS_PROFILE").or(surroundings.get("AWS_DEFAULT_PROFILE")).unwrap_or("default");
        let file = |variable, usual| match surroundings.get(variable) {
            Some(path) => fs::read_to_string(path).unwrap_or_default(),
            None => surroundings.in_home(usual).unwrap_or_default(),
        };
        let secrets = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
        let settings = file("AWS_CONFIG_FILE", ".aws/config");
        let either = |key| {
            let of_settings =
                || value_in(&settings, &format!("profile {name}"), key).or(value_in(&settings, name, key));
            value_in(&secrets, name, key).or_else(of_settings)
        };
        Self {
            key: either("aws_access_key_id"),
            secret: either("aws_secret_access_key"),
            token: either("aws_session_token"),
            region: either("region"),
            endpoint: either("endpoint_url"),
        }
    }
}

/// The value of a key in a section of an ini file.
fn value_in(text: &str, section: &str, key: &str) -> Option<String> {
    let mut inside = false;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = name.split_whitespace().eq(section.split_whitespace());
        } else if inside
            // An indented line belongs to a nested setting.
            && !line.starts_with(char::is_whitespace)
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

fn text_pair((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

#[cfg(test)]
mod tests;
