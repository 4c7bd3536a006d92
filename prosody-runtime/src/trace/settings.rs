//! Where do spans go, and which? What the variables of OpenTelemetry say. *Pure.*

use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use super::sampler::{Root, Sampler};
use crate::config::Problem;

/// Longest wait for a collector, however it is written.
const MAX_TIMEOUT: Duration = Duration::from_secs(120);
/// Most spans that may be asked to wait.
const MAX_QUEUE: usize = 65_536;
/// Most attributes of the resource and headers of a request.
const MAX_PAIRS: usize = 128;

/// How spans are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Protobuf,
    Json,
}

/// Everything an exporter is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) endpoint: String,
    pub(crate) protocol: Protocol,
    /// May hold credentials.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// For one batch, retries included.
    pub(crate) timeout: Duration,
    /// Authorities to trust instead of the platform's.
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) service: Option<String>,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) sampler: Sampler,
    /// How long spans wait for others.
    pub(crate) delay: Duration,
    /// Spans that may wait; one more is dropped.
    pub(crate) queue: usize,
    /// Spans that are sent together.
    pub(crate) batch: usize,
}

/// What the variables say.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// `None` without an endpoint.
    pub(crate) settings: Option<Settings>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<String>,
}

struct Variables<'a> {
    all: &'a [(String, String)],
    read: Read,
}

/// Reads the variables that start with `OTEL_`. Without an endpoint for traces none of the others counts.
pub(crate) fn read(all: &[(String, String)]) -> Read {
    let mut variables = Variables { all, read: Read::default() };
    let settings = variables.settings();
    let mut read = variables.read;
    read.settings = settings.filter(|_| read.problems.is_empty());
    read
}

impl<'a> Variables<'a> {
    fn settings(&mut self) -> Option<Settings> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return None;
        }
        let exporters = self.get("OTEL_TRACES_EXPORTER").unwrap_or("otlp");
        if !exporters.split(',').any(|name| name.trim().eq_ignore_ascii_case("otlp")) {
            return None;
        }
        let endpoint = match self.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(url) => url.to_owned(),
            None => format!("{}/v1/traces", self.get("OTEL_EXPORTER_OTLP_ENDPOINT")?.trim_end_matches('/')),
        };
        let second = Duration::from_secs(1);
        Some(Settings {
            endpoint,
            protocol: self.protocol(),
            headers: self.headers(),
            timeout: self.of_traces("TIMEOUT").map_or(second * 10, |(name, text)| self.millis(name, text)),
            authorities: self.of_traces("CERTIFICATE").map(|(_, path)| PathBuf::from(path)),
            service: self.get("OTEL_SERVICE_NAME").map(str::to_owned),
            resource: self.pairs("OTEL_RESOURCE_ATTRIBUTES"),
            sampler: self.sampler(),
            delay: self
                .get("OTEL_BSP_SCHEDULE_DELAY")
                .map_or(second * 5, |text| self.millis("OTEL_BSP_SCHEDULE_DELAY", text)),
            queue: self.count("OTEL_BSP_MAX_QUEUE_SIZE", 2_048).min(MAX_QUEUE),
            batch: self.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).min(MAX_QUEUE),
        })
    }

    /// A variable that is set and not blank.
    fn get(&self, name: &str) -> Option<&'a str> {
        let set = self.all.iter().rev().find(|(known, _)| known == name);
        set.map(|(_, text)| text.trim()).filter(|text| !text.is_empty())
    }

    /// The variable of the traces' exporter, or that of all exporters; with its name.
    fn of_traces(&self, what: &str) -> Option<(&'static str, &'a str)> {
        let [own, all] = match what {
            "PROTOCOL" => ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
            "HEADERS" => ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"],
            "CERTIFICATE" => ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
            _ => ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
        };
        [own, all].into_iter().find_map(|name| Some((name, self.get(name)?)))
    }

    fn wrong(&mut self, variable: &str, why: String) {
        self.read.problems.push(Problem { option: variable.to_owned(), variable: String::new(), why });
    }

    fn protocol(&mut self) -> Protocol {
        let Some((name, text)) = self.of_traces("PROTOCOL") else { return Protocol::Protobuf };
        match text.to_ascii_lowercase().as_str() {
            "http/protobuf" => return Protocol::Protobuf,
            "http/json" => return Protocol::Json,
            "grpc" => self.wrong(name, "`grpc` is not spoken; use http/protobuf or http/json".to_owned()),
            _ => self.wrong(name, format!("`{text}` is neither http/protobuf nor http/json")),
        }
        Protocol::Protobuf
    }

    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let Some((name, _)) = self.of_traces("HEADERS") else { return Vec::new() };
        let mut headers = Vec::new();
        for (key, value) in self.pairs(name) {
            let (key_read, value_read) = (HeaderName::try_from(&key), HeaderValue::try_from(&value));
            match (key_read, value_read) {
                (Ok(key), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.push((key, value));
                }
                // The value may be a secret.
                _ => self.wrong(name, format!("`{key}` is no header, or its value is none")),
            }
        }
        headers
    }

    /// `name=value` members with percent encoding, as W3C Baggage writes them.
    fn pairs(&mut self, variable: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for member in self.get(variable).unwrap_or_default().split(',') {
            match member.split_once('=') {
                Some((name, value)) if !name.trim().is_empty() && pairs.len() < MAX_PAIRS => {
                    pairs.push((decoded(name.trim()), decoded(value.trim())));
                }
                None if member.trim().is_empty() => {}
                _ => {
                    let why =
                        format!("is not a list of at most {MAX_PAIRS} `name=value` separated by commas");
                    self.wrong(variable, why);
                    break;
                }
            }
        }
        pairs
    }

    fn millis(&mut self, name: &str, text: &str) -> Duration {
        match text.parse().ok().map(Duration::from_millis).filter(|time| !time.is_zero()) {
            Some(time) => time.min(MAX_TIMEOUT),
            None => {
                self.wrong(name, format!("`{text}` is not a number of milliseconds"));
                MAX_TIMEOUT
            }
        }
    }

    fn count(&mut self, name: &str, default: usize) -> usize {
        let Some(text) = self.get(name) else { return default };
        text.parse().ok().filter(|count| *count > 0).unwrap_or_else(|| {
            self.wrong(name, format!("`{text}` is not a number above 0"));
            default
        })
    }

    /// A sampler that another library of the process may know is no reason to fail.
    fn sampler(&mut self) -> Sampler {
        let name = self.get("OTEL_TRACES_SAMPLER").unwrap_or("parentbased_always_on").to_ascii_lowercase();
        let (by_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name.as_str()),
        };
        let root = match root {
            "always_on" => Root::On,
            "always_off" => Root::Off,
            "traceidratio" => {
                let text = self.get("OTEL_TRACES_SAMPLER_ARG").unwrap_or("1");
                match text.parse().ok().filter(|share| (0.0..=1.0).contains(share)) {
                    Some(share) => Root::share(share),
                    None => {
                        let why = format!("`{text}` is not a share from 0 to 1; every trace is sampled");
                        self.read.warnings.push(format!("OTEL_TRACES_SAMPLER_ARG: {why}"));
                        Root::On
                    }
                }
            }
            _ => {
                let why = format!("`{name}` is not known here; parentbased_always_on is used");
                self.read.warnings.push(format!("OTEL_TRACES_SAMPLER: {why}"));
                return Sampler { by_parent: true, root: Root::On };
            }
        };
        Sampler { by_parent, root }
    }
}

/// Percent encoding undone. What is no encoding stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
        bytes.push(byte.unwrap_or(*first));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");

    fn of(pairs: &[(&str, &str)]) -> Read {
        let all: Vec<_> = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        read(&all)
    }

    fn wrong(pair: (&str, &str)) -> String {
        let read = of(&[ENDPOINT, pair]);
        assert_eq!(read.settings, None);
        read.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn without_an_endpoint_nothing_else_counts() {
        let other = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_SAMPLER", "x")];
        for off in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "True")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
            &[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c")],
        ] {
            let read = of(&[off, &other].concat());
            assert!(
                read.settings.is_none() && read.problems.is_empty() && read.warnings.is_empty(),
                "{off:?}"
            );
        }
    }

    #[test]
    fn variables_of_traces_win_and_defaults_are_those_of_opentelemetry() {
        let defaults = of(&[ENDPOINT]).settings.unwrap();
        assert_eq!((&*defaults.endpoint, defaults.protocol), ("http://c:4318/v1/traces", Protocol::Protobuf));
        let (seconds, sizes) =
            ((defaults.timeout.as_secs(), defaults.delay.as_secs()), (defaults.queue, defaults.batch));
        assert_eq!((seconds, sizes), ((10, 5), (2_048, 512)));
        assert_eq!(defaults.sampler, Sampler { by_parent: true, root: Root::On });
        let set = of(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/as/it/is"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "HTTP/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x = y=z ,"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_SERVICE_NAME", "orders"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=%E2%82%AC,k=50%"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ]);
        let set = set.settings.unwrap();
        assert_eq!((&*set.endpoint, set.protocol), ("https://t/as/it/is", Protocol::Json));
        let headers: Vec<_> =
            set.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("api-key", &b"a b"[..]), ("x", &b"y=z"[..])]);
        assert!(!format!("{:?}", set.headers).contains("a b"), "headers are secrets");
        assert_eq!((set.timeout.as_millis(), set.delay.as_millis()), (250, 50));
        assert_eq!((set.authorities, set.service.as_deref()), (Some("/ca.pem".into()), Some("orders")));
        let resource = [("service.name", "other"), ("deployment.environment.name", "€"), ("k", "50%")];
        assert_eq!(set.resource, resource.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(set.sampler, Sampler { by_parent: false, root: Root::share(0.25) });
    }

    #[test]
    fn what_cannot_be_done_is_said_by_variable_and_grpc_names_what_can() {
        assert_eq!(
            wrong(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")),
            "OTEL_EXPORTER_OTLP_PROTOCOL: `grpc` is not spoken; use http/protobuf or http/json"
        );
        assert!(
            wrong(("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp"))
                .contains("neither http/protobuf nor http/json")
        );
        let headers = wrong(("OTEL_EXPORTER_OTLP_HEADERS", "ok=1,b d=secret"));
        assert!(headers.contains("`b d` is no header") && !headers.contains("secret"), "{headers}");
        assert!(wrong(("OTEL_RESOURCE_ATTRIBUTES", "a")).contains("`name=value`"));
        assert!(wrong(("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")).contains("milliseconds"));
        assert!(wrong(("OTEL_BSP_MAX_QUEUE_SIZE", "0")).contains("above 0"));
        for pair in [("OTEL_TRACES_SAMPLER", "jaeger_remote"), ("OTEL_TRACES_SAMPLER", "")] {
            let read = of(&[ENDPOINT, pair]);
            assert_eq!(read.warnings.len(), usize::from(!pair.1.is_empty()));
            assert_eq!(read.settings.unwrap().sampler, Sampler { by_parent: true, root: Root::On });
        }
    }
}
