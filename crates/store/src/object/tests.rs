//! A bucket behind a server that misbehaves as told: one scripted answer per request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;
use crate::location::Place;

/// Answers requests from a script, and remembers what they asked.
struct Server {
    bucket: Bucket,
    at: Location,
    asked: Arc<Mutex<Vec<String>>>,
}

/// One answer: a status line with headers, the body, and how much of it is really sent.
struct Reply {
    head: String,
    body: Vec<u8>,
    sent: usize,
}

fn reply(status: &str, body: &str) -> Reply {
    let body = body.as_bytes().to_vec();
    Reply { head: format!("HTTP/1.1 {status}\r\n"), sent: body.len(), body }
}

fn object(body: &str) -> Reply {
    let mut reply = reply("200 OK", body);
    reply.head.push_str("ETag: \"e\"\r\nLast-Modified: Wed, 12 Oct 2022 17:50:00 GMT\r\n");
    reply
}

fn cut(mut reply: Reply) -> Reply {
    reply.sent /= 2;
    reply
}

fn serve(script: Vec<Reply>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = asked.clone();
    thread::spawn(move || {
        for reply in script {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap();
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            heard.lock().unwrap().push(first.trim_end_matches(" HTTP/1.1\r\n").to_owned());
            let head = format!("{}Content-Length: {}\r\nConnection: close\r\n\r\n", reply.head, reply.body.len());
            let mut stream = &stream;
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&reply.body[..reply.sent]).unwrap();
        }
    });
    let Ok(Place::Object(at)) = Place::parse(&format!("s3://box/run?endpoint_override={endpoint}")) else {
        panic!("the location is one of S3");
    };
    let variables = [("AWS_ACCESS_KEY_ID", "KEY"), ("AWS_SECRET_ACCESS_KEY", "SECRET")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let bucket = Bucket::open(&at, &Surroundings { variables, maker: String::new() }).unwrap();
    Server { bucket, at, asked }
}

impl Server {
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[test]
fn a_busy_server_is_asked_again() {
    let server = serve(vec![reply("503 Slow Down", ""), reply("500 Oh", ""), object("")]);
    server.bucket.write(&server.at.join("a"), b"text").unwrap();
    assert_eq!(server.asked(), vec!["PUT /box/run/a"; 3]);
}

#[test]
fn an_answer_that_is_cut_is_asked_for_again() {
    // The client asks for what is missing, and only for that.
    let mut rest = object("le text");
    rest.head = rest.head.replace("200 OK", "206 Partial Content") + "Content-Range: bytes 7-13/14\r\n";
    let server = serve(vec![cut(object("the whole text")), rest]);
    let read = server.bucket.read(&server.at.join("a")).unwrap();
    assert_eq!(read.as_deref(), Some(&b"the whole text"[..]));
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a_listing_that_is_cut_is_asked_for_again() {
    let page = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>run/a</Key><Size>3</Size>\
                <LastModified>2022-10-12T17:50:00.000Z</LastModified><ETag>e</ETag></Contents></ListBucketResult>";
    let server = serve(vec![cut(reply("200 OK", page)), reply("200 OK", page)]);
    assert_eq!(server.bucket.list(&server.at).unwrap(), [Entry { key: "a".into(), size: 3 }]);
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn object_2_an_upload_that_was_finished_when_its_answer_was_lost_is_finished() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("large");
    let content = vec![7u8; ONE_PUT as usize + 1];
    std::fs::write(&path, &content).unwrap();
    let begun = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
    let unknown = "<Error><Code>NoSuchUpload</Code><Message>no such upload</Message></Error>";
    let finished = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>";
    let mut head = object("");
    head.body = content.clone();
    let mut script = vec![reply("200 OK", begun)];
    script.extend((0..3).map(|_| object("")));
    script.extend([cut(reply("200 OK", finished)), reply("404 Not Found", unknown), head]);
    let server = serve(script);
    let stored = server.bucket.upload_all(&server.at, &[(path, "large".into())]).unwrap();
    assert_eq!(stored[0].crc32c, Some(crc32c::crc32c(&content)));
    let methods: Vec<String> = server.asked().iter().map(|line| line[..4].trim().to_owned()).collect();
    assert_eq!(methods, ["POST", "PUT", "PUT", "PUT", "POST", "POST", "HEAD"]);
}

#[test]
fn a_refusal_tells_the_servers_words_and_no_secret() {
    let body = "<Error><Code>AccessDenied</Code><Message>you may not</Message></Error>";
    let server = serve(vec![reply("403 Forbidden", body)]);
    let error = server.bucket.write(&server.at.join("a"), b"text").unwrap_err().to_string();
    assert_eq!(error, "cannot write `s3://box/run/a`: the server answered 403 Forbidden (AccessDenied: you may not)");
}

#[test]
fn a_bucket_that_is_not_there_is_not_an_empty_one() {
    let body = |code: &str| format!("<Error><Code>{code}</Code><Message>none</Message></Error>");
    let server = serve(vec![reply("404 Not Found", &body("NoSuchKey")), reply("404 Not Found", &body("NoSuchBucket"))]);
    assert_eq!(server.bucket.read(&server.at.join("a")).unwrap(), None);
    assert!(server.bucket.read(&server.at.join("a")).unwrap_err().to_string().contains("NoSuchBucket"));
}
