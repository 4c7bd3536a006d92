//! A collector of traces: it takes both forms of OTLP over HTTP, reads them with a reader of its own, and can misbehave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use prosody_base::{Clock, Network};
use prosody_runtime::ClientBuilder;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

/// Where it listens.
pub const PLACE: &str = "collector:4318";

/// What it does with a request.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    Takes,
    Answers(u16, Option<u64>),
    /// Reads the request and never answers.
    Hangs,
    /// Writes what is no HTTP.
    Babbles,
    /// Answers without an end.
    Floods,
    Closes,
}

/// A span as a collector sees it. Ids in hex.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub name: String,
    pub trace: String,
    pub span: String,
    pub parent: String,
    pub state: String,
    pub kind: u64,
    pub start: u64,
    pub end: u64,
    pub flags: u64,
    pub attributes: BTreeMap<String, String>,
    pub links: Vec<[String; 2]>,
    /// Its status and the text, and the events.
    pub status: (u64, String),
    pub events: Vec<(String, BTreeMap<String, String>)>,
}

impl Seen {
    pub fn says(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

#[derive(Clone, Default)]
pub struct Collector {
    pub spans: Arc<Mutex<Vec<Seen>>>,
    pub resources: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    /// Content type, path and the header `api-key` of each request.
    pub requests: Arc<Mutex<Vec<[String; 3]>>>,
    pub connections: Arc<Mutex<usize>>,
    manner: Arc<Mutex<Vec<Manner>>>,
}

impl Collector {
    /// Answers in these manners, one request after the other; the last one counts for all others.
    pub fn start(network: &Network, clock: &Clock, manner: &[Manner]) -> Collector {
        let collector = Collector { manner: Arc::new(Mutex::new(manner.to_vec())), ..Collector::default() };
        let mut listener = network.listen(PLACE).unwrap();
        let (accepting, clock) = (collector.clone(), clock.clone());
        tokio::spawn(async move {
            while let Ok(mut stream) = listener.accept().await {
                *accepting.connections.lock().unwrap() += 1;
                let (mine, clock) = (accepting.clone(), clock.clone());
                tokio::spawn(async move {
                    match mine.manner() {
                        Manner::Babbles => {
                            mine.next();
                            let _ = stream.write_all(&[0x80; 300]).await;
                        }
                        Manner::Closes => {
                            mine.next();
                        }
                        _ => {
                            let service = service_fn(|request| mine.answer(request, clock.clone()));
                            let _ =
                                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                });
            }
        });
        collector
    }

    /// What a client is told to find it.
    pub fn variables(protocol: &str) -> Vec<(String, String)> {
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*format!("http://{PLACE}")),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .to_vec()
    }

    pub fn spans(&self) -> Vec<Seen> {
        self.spans.lock().unwrap().clone()
    }

    pub fn named(&self, name: &str) -> Vec<Seen> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    fn manner(&self) -> Manner {
        self.manner.lock().unwrap().first().copied().unwrap_or(Manner::Takes)
    }

    fn next(&self) -> Manner {
        let mut manner = self.manner.lock().unwrap();
        if manner.len() > 1 { manner.remove(0) } else { manner.first().copied().unwrap_or(Manner::Takes) }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        clock: Clock,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let text = |name: &str| {
            let value = request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            value.unwrap_or_default()
        };
        let head = [text("content-type"), request.uri().to_string(), text("api-key")];
        let json = head[0] == "application/json";
        self.requests.lock().unwrap().push(head);
        let body = request.into_body().collect().await?.to_bytes();
        let (status, after, said) = match self.next() {
            Manner::Answers(status, after) => (status, after, Bytes::from_static(b"not\nnow")),
            Manner::Floods => (200, None, Bytes::from(vec![b'x'; 1 << 20])),
            Manner::Hangs => {
                clock.sleep(Duration::from_secs(100_000)).await;
                (200, None, Bytes::new())
            }
            _ => {
                let (resource, spans) = if json { read_json(&body) } else { read_protobuf(&body) };
                self.resources.lock().unwrap().push(resource);
                self.spans.lock().unwrap().extend(spans);
                (200, None, Bytes::new())
            }
        };
        let mut response = Response::builder().status(status);
        if let Some(after) = after {
            response = response.header("retry-after", after);
        }
        Ok(response.body(Full::new(said)).unwrap())
    }
}

pub fn with_collector(builder: ClientBuilder, protocol: &str) -> ClientBuilder {
    builder.environment(Collector::variables(protocol))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read_json(body: &[u8]) -> (BTreeMap<String, String>, Vec<Seen>) {
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().unwrap(),
        value => value.as_u64().unwrap_or_default(),
    };
    let pairs = |list: &Value| -> BTreeMap<String, String> {
        let all = list.as_array().cloned().unwrap_or_default().into_iter().map(|pair| {
            let (_, value) = pair["value"].as_object().unwrap().iter().next().unwrap();
            (text(&pair["key"]), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        all.collect()
    };
    let all: Value = serde_json::from_slice(body).unwrap();
    let of_resource = &all["resourceSpans"][0];
    let scope = &of_resource["scopeSpans"][0];
    assert_eq!(scope["scope"]["name"], "prosody");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let spans = list(&scope["spans"]).into_iter().map(|span| Seen {
        name: text(&span["name"]),
        trace: text(&span["traceId"]),
        span: text(&span["spanId"]),
        parent: text(&span["parentSpanId"]),
        state: text(&span["traceState"]),
        kind: number(&span["kind"]),
        start: number(&span["startTimeUnixNano"]),
        end: number(&span["endTimeUnixNano"]),
        flags: number(&span["flags"]),
        attributes: pairs(&span["attributes"]),
        links: list(&span["links"])
            .iter()
            .map(|link| [text(&link["traceId"]), text(&link["spanId"])])
            .collect(),
        status: (number(&span["status"]["code"]), text(&span["status"]["message"])),
        events: list(&span["events"]).iter().map(|e| (text(&e["name"]), pairs(&e["attributes"]))).collect(),
    });
    (pairs(&of_resource["resource"]["attributes"]), spans.collect())
}

/// A field of a protobuf message.
#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(self) -> u64 {
        match self {
            Field::Number(number) => number,
            Field::Bytes(_) => panic!("bytes"),
        }
    }
    fn bytes(self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => panic!("a number"),
        }
    }
    fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in 0.. {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << (7 * shift);
            if first & 0x80 == 0 {
                break;
            }
        }
        number
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let mut take = |count: usize| {
            let (taken, rest) = bytes.split_at(count);
            bytes = rest;
            taken
        };
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(take(8).try_into().unwrap())),
            5 => Field::Number(u32::from_le_bytes(take(4).try_into().unwrap()).into()),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (taken, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(taken)
            }
            kind => panic!("kind {kind}"),
        };
        all.push((tag >> 3, field));
    }
    all
}

fn pair(bytes: &[u8]) -> (String, String) {
    let (mut name, mut value) = (String::new(), String::new());
    for (number, field) in fields(bytes) {
        match number {
            1 => name = field.text(),
            _ => {
                value = match fields(field.bytes())[0] {
                    (1, text) => text.text(),
                    (2, flag) => (flag.number() == 1).to_string(),
                    (_, number) => number.number().cast_signed().to_string(),
                }
            }
        }
    }
    (name, value)
}

fn read_protobuf(body: &[u8]) -> (BTreeMap<String, String>, Vec<Seen>) {
    let only = |bytes, wanted: u64| {
        fields(bytes).into_iter().filter(move |(number, _)| *number == wanted).map(|(_, field)| field)
    };
    let of_resource = only(body, 1).next().unwrap().bytes();
    let resource = only(of_resource, 1).next().unwrap().bytes();
    let scope = only(of_resource, 2).next().unwrap().bytes();
    let name = only(scope, 1).next().unwrap().bytes();
    assert_eq!(only(name, 1).next().unwrap().text(), "prosody");
    let spans = only(scope, 2).map(|span| {
        let mut seen = Seen::default();
        for (number, field) in fields(span.bytes()) {
            match number {
                1 => seen.trace = hex(field.bytes()),
                2 => seen.span = hex(field.bytes()),
                3 => seen.state = field.text(),
                4 => seen.parent = hex(field.bytes()),
                5 => seen.name = field.text(),
                6 => seen.kind = field.number(),
                7 => seen.start = field.number(),
                8 => seen.end = field.number(),
                9 => seen.attributes.extend([pair(field.bytes())]),
                11 => {
                    let event = field.bytes();
                    let attributes = only(event, 3).map(|field| pair(field.bytes())).collect();
                    seen.events.push((only(event, 2).next().unwrap().text(), attributes));
                }
                13 => {
                    let id = |wanted| hex(only(field.bytes(), wanted).next().unwrap().bytes());
                    seen.links.push([id(1), id(2)]);
                }
                15 => {
                    let status = field.bytes();
                    seen.status =
                        (only(status, 3).next().unwrap().number(), only(status, 2).next().unwrap().text());
                }
                16 => seen.flags = field.number(),
                other => panic!("field {other}"),
            }
        }
        seen
    });
    (only(resource, 1).map(|field| pair(field.bytes())).collect(), spans.collect())
}
