//! What does a request ask for? Method and path become one call of the cluster.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::rules::{self, Fields};
use super::{batches, views};
use crate::Cluster;
use crate::broker::{Rule, Told};

/// Records or requests of one answer.
const LIST: usize = 10_000;
/// Longest wait for a rule.
const WAIT: u64 = 60_000;

/// What is sent back.
#[derive(Debug)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u16,
    /// One JSON value, or plain text.
    pub body: String,
    pub(super) is_json: bool,
}

impl Answer {
    fn json(value: &Value) -> Answer {
        Answer { status: 200, body: value.to_string(), is_json: true }
    }

    pub(super) fn wrong(status: u16, why: impl Into<String>) -> Answer {
        Answer { status, body: json!({ "error": why.into() }).to_string(), is_json: true }
    }
}

/// A request that is refused: status and why.
pub(super) type Refused = (u16, String);
pub(super) type Answered = Result<Value, Refused>;

const HELP: &str = "\
GET    /                                this text
GET    /cluster                         brokers and counts
GET    /topics                          names
POST   /topics                          {\"name\", \"partitions\": 1, \"replication\": -1, \"configs\": {}}
GET    /topics/T                        leaders and offsets
DELETE /topics/T
POST   /topics/T/recreate               empty, with a new id
GET    /topics/T/P/records?from=0&limit=100
POST   /topics/T/P/records              {\"key\", \"value\"}, or a list of them
POST   /topics/T/P/batch                {\"producer\", \"epoch\": 0, \"sequence\": 0, \"transactional\": false, \"timestamp\", \"records\": [...]}
POST   /topics/T/P/end_transaction      {\"producer\", \"epoch\": 0, \"commit\": true}
POST   /topics/T/P/raw                  {\"base64\", \"last_offset\": OFFSET}: bytes that nobody checks, up to there
POST   /topics/T/P/leader               {\"broker\": B}, -1 for none
POST   /topics/T/P/elect_unclean        {\"broker\": B, \"from\": OFFSET}: it leads without what is from there on
POST   /topics/T/P/metadata             {\"leader\", \"epoch\", \"error\"} that metadata tells from now on; {} for the truth
POST   /topics/T/P/compact
POST   /topics/T/P/retention            {\"before\": OFFSET}
GET    /groups                          names
GET    /groups/G                        members and offsets
POST   /groups/G/coordinator            {\"broker\": B}
POST   /groups/G/evict                  {\"client\": CLIENT_ID}
POST   /brokers/B/stop
POST   /brokers/B/start
POST   /brokers/B/cut                   its connections
POST   /rules                           {\"match\": {...}, \"action\": ...}
GET    /rules/R?hits=1&wait_ms=5000     how often it struck, once it did
DELETE /rules/R
DELETE /rules
GET    /journal?api=Fetch&limit=100     the newest requests
DELETE /journal
GET    /violations                      what clients did that must never happen";

/// Answers one request.
pub async fn answer(cluster: &Cluster, method: &str, path: &str, query: &str, body: &[u8]) -> Answer {
    if method == "GET" && path == "/" {
        return Answer { status: 200, body: HELP.to_owned(), is_json: false };
    }
    let body = match body {
        [] => Value::Null,
        bytes => match serde_json::from_slice(bytes) {
            Ok(body) => body,
            Err(why) => return Answer::wrong(400, format!("the body is no JSON: {why}")),
        },
    };
    let parts: Vec<Cow<'_, str>> = path.split('/').skip(1).map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let query = Query(query);
    let done = match (method, parts.as_slice()) {
        ("GET", ["rules", rule]) => struck(cluster, rule, &query).await,
        (_, ["topics", rest @ ..]) => topics(cluster, method, rest, &query, body),
        (_, ["groups", rest @ ..]) => groups(cluster, method, rest, body),
        (_, ["brokers", broker, verb]) if method == "POST" => brokers(cluster, broker, verb),
        ("GET", ["cluster"]) => Ok(views::cluster(cluster)),
        ("POST", ["rules"]) => add_rule(cluster, body),
        ("DELETE", ["rules"]) => {
            cluster.control().clear();
            Ok(json!({}))
        }
        ("DELETE", ["rules", rule]) => rule_of(rule).map(|rule| {
            cluster.control().remove(rule);
            json!({})
        }),
        ("GET", ["journal"]) => journal(cluster, &query),
        ("DELETE", ["journal"]) => {
            cluster.clear_journal();
            Ok(json!({}))
        }
        ("GET", ["violations"]) => {
            Ok(json!(cluster.violations().iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        _ => Err(nowhere(method, path)),
    };
    match done {
        Ok(value) => Answer::json(&value),
        Err((status, why)) => Answer::wrong(status, why),
    }
}

fn nowhere(method: &str, path: &str) -> Refused {
    let path: String = path.chars().take(200).collect();
    (404, format!("there is no {method} {path}; GET / lists what there is"))
}

pub(super) fn bad(why: impl Into<String>) -> Refused {
    (400, why.into())
}

pub(super) fn missing(what: &str, name: &str) -> Refused {
    (404, format!("there is no {what} {}", name.chars().take(200).collect::<String>()))
}

fn topics(cluster: &Cluster, method: &str, parts: &[&str], query: &Query<'_>, body: Value) -> Answered {
    let refused = |(code, why): (i16, String)| (409, format!("error {code}: {why}"));
    match (method, parts) {
        ("GET", []) => Ok(json!(cluster.topics())),
        ("POST", []) => {
            let mut fields = Fields::of(body).map_err(bad)?;
            let name = fields.text("name").map_err(bad)?.ok_or_else(|| bad("`name` is wanted"))?;
            let partitions = fields.number("partitions").map_err(bad)?.unwrap_or(1);
            let replication = fields.number("replication").map_err(bad)?.unwrap_or(-1);
            let mut configs = BTreeMap::new();
            if let Some(given) = fields.take("configs") {
                for (key, value) in given.as_object().ok_or_else(|| bad("`configs` is an object"))? {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    configs.insert(key.clone(), text);
                }
            }
            fields.end("name, partitions, replication and configs").map_err(bad)?;
            cluster.create_topic_with(&name, partitions, replication, configs).map_err(refused)?;
            views::topic(cluster, &name).ok_or_else(|| missing("topic", &name))
        }
        ("GET", [name]) => views::topic(cluster, name).ok_or_else(|| missing("topic", name)),
        ("DELETE", [name]) if cluster.delete_topic(name) => Ok(json!({})),
        ("POST", [name, "recreate"]) => {
            cluster.recreate_topic(name).map_err(refused)?;
            views::topic(cluster, name).ok_or_else(|| missing("topic", name))
        }
        (_, [name, index, rest @ ..]) => {
            let known = |index: &i32| cluster.leader(name, *index).is_some();
            let parsed = index.parse().ok().filter(known);
            let index = parsed.ok_or_else(|| missing("partition", &format!("{name}/{index}")))?;
            partition(cluster, method, (name, index), rest, query, body)
        }
        (_, [name]) => Err(missing("topic", name)),
        (method, []) => Err(nowhere(method, "/topics")),
    }
}

fn partition(
    cluster: &Cluster,
    method: &str,
    (name, index): (&str, i32),
    rest: &[&str],
    query: &Query<'_>,
    body: Value,
) -> Answered {
    let now = || views::partition(cluster, name, index).ok_or_else(|| missing("topic", name));
    match (method, rest) {
        ("GET", []) => now(),
        ("GET", ["records"]) => {
            let from = query.number("from")?.unwrap_or(0);
            let limit = query.limit()?;
            let records = cluster.log(name, index).into_iter().filter(|record| record.offset >= from);
            Ok(json!(records.take(limit).map(|record| views::record(&record)).collect::<Vec<_>>()))
        }
        ("POST", ["records"]) => batches::records(cluster, (name, index), body),
        ("POST", ["batch"]) => batches::batch(cluster, (name, index), body),
        ("POST", ["end_transaction"]) => batches::end_transaction(cluster, (name, index), body),
        ("POST", ["raw"]) => batches::raw(cluster, (name, index), body),
        ("POST", ["leader"]) => {
            let broker = broker_in(cluster, body, true)?;
            cluster.move_leader(name, index, broker);
            now()
        }
        ("POST", ["elect_unclean"]) => {
            let mut fields = Fields::of(body).map_err(bad)?;
            let from = fields.number("from").map_err(bad)?.ok_or_else(|| bad("`from` is an offset"))?;
            let broker = broker_of(cluster, &mut fields, false)?;
            fields.end("broker and from").map_err(bad)?;
            cluster.elect_unclean(name, index, broker, from);
            now()
        }
        ("POST", ["metadata"]) => {
            let mut fields = Fields::of(body).map_err(bad)?;
            let error = fields.take("error").map(|value| rules::error(&value)).transpose().map_err(bad)?;
            let (leader, epoch) =
                (fields.number("leader").map_err(bad)?, fields.number("epoch").map_err(bad)?);
            fields.end("leader, epoch and error").map_err(bad)?;
            cluster.script_metadata(name, index, Told { leader, epoch, error });
            Ok(json!({ "leader": leader, "epoch": epoch, "error": error }))
        }
        ("POST", ["compact"]) => Ok(json!({ "removed": cluster.compact(name, index) })),
        ("POST", ["retention"]) => {
            let mut fields = Fields::of(body).map_err(bad)?;
            let before = fields.number("before").map_err(bad)?.ok_or_else(|| bad("`before` is an offset"))?;
            fields.end("before").map_err(bad)?;
            cluster.delete_records(name, index, before);
            now()
        }
        _ => Err(nowhere(method, &format!("/topics/{name}/{index}/{}", rest.join("/")))),
    }
}

fn groups(cluster: &Cluster, method: &str, parts: &[&str], body: Value) -> Answered {
    match (method, parts) {
        ("GET", []) => Ok(json!(cluster.groups())),
        ("GET", [name]) => {
            let group = cluster.group(name).ok_or_else(|| missing("group", name))?;
            let mut view = views::group(name, &group);
            if let Some(fields) = view.as_object_mut() {
                fields.insert("coordinator".to_owned(), json!(cluster.coordinator(name)));
            }
            Ok(view)
        }
        ("POST", [name, "coordinator"]) => {
            let broker = broker_in(cluster, body, false)?;
            cluster.move_coordinator(name, broker);
            Ok(json!({ "coordinator": broker }))
        }
        ("POST", [name, "evict"]) => {
            let mut fields = Fields::of(body).map_err(bad)?;
            let client = fields.text("client").map_err(bad)?.ok_or_else(|| bad("`client` is a client id"))?;
            fields.end("client").map_err(bad)?;
            Ok(json!({ "evicted": cluster.evict(name, &client) }))
        }
        _ => Err(nowhere(method, &format!("/groups/{}", parts.join("/")))),
    }
}

/// The broker that is all a body names; −1 where nobody will do.
fn broker_in(cluster: &Cluster, body: Value, or_none: bool) -> Result<i32, Refused> {
    let mut fields = Fields::of(body).map_err(bad)?;
    let broker = broker_of(cluster, &mut fields, or_none)?;
    fields.end("broker").map_err(bad)?;
    Ok(broker)
}

fn broker_of(cluster: &Cluster, fields: &mut Fields, or_none: bool) -> Result<i32, Refused> {
    let broker =
        fields.number("broker").map_err(bad)?.ok_or_else(|| bad("`broker` is the number of a broker"))?;
    let known = cluster.brokers().contains(&broker) || (or_none && broker == -1);
    if known { Ok(broker) } else { Err(missing("broker", &broker.to_string())) }
}

fn brokers(cluster: &Cluster, broker: &str, verb: &str) -> Answered {
    let known = broker.parse().ok().filter(|broker| cluster.brokers().contains(broker));
    let id = known.ok_or_else(|| missing("broker", broker))?;
    match verb {
        "stop" => cluster.stop_broker(id),
        "start" => cluster.start_broker(id),
        "cut" => cluster.cut_connections(id),
        _ => return Err(nowhere("POST", &format!("/brokers/{id}/{verb}"))),
    }
    Ok(json!({ "id": id, "up": cluster.is_up(id) }))
}

fn add_rule(cluster: &Cluster, body: Value) -> Answered {
    let mut fields = Fields::of(body).map_err(bad)?;
    let what = rules::matching(fields.take("match").unwrap_or_default()).map_err(bad)?;
    let action = fields.take("action").ok_or_else(|| bad("`action` is wanted"))?;
    let action = rules::action(&action).map_err(bad)?;
    fields.end("match and action").map_err(bad)?;
    Ok(json!({ "rule": cluster.control().on(what, action).0 }))
}

fn rule_of(text: &str) -> Result<Rule, Refused> {
    text.parse().map(Rule).map_err(|_| missing("rule", text))
}

/// How often a rule struck, perhaps after waiting until it did.
async fn struck(cluster: &Cluster, rule: &str, query: &Query<'_>) -> Answered {
    let rule = rule_of(rule)?;
    if let Some(hits) = query.number("hits")? {
        let wait = query.number("wait_ms")?.unwrap_or(0);
        let wait = u64::try_from(wait).ok().filter(|wait| *wait <= WAIT);
        let wait = wait.ok_or_else(|| bad(format!("`wait_ms` is at most {WAIT}")))?;
        let (clock, hits) = (&cluster.shared.doors.clock, u64::try_from(hits).unwrap_or(0));
        let deadline = clock.now() + Duration::from_millis(wait);
        if clock.until(deadline, cluster.control().reached(rule, hits)).await.is_err() {
            return Err((408, format!("the rule struck {} times", cluster.control().hits(rule))));
        }
    }
    Ok(json!({ "rule": rule.0, "hits": cluster.control().hits(rule) }))
}

fn journal(cluster: &Cluster, query: &Query<'_>) -> Answered {
    let api = query.text("api").map(|name| rules::api(&json!(name))).transpose().map_err(bad)?;
    let limit = query.limit()?;
    let mut entries = cluster.journal();
    entries.retain(|entry| api.is_none_or(|api| api == entry.api));
    let newest = entries.len().saturating_sub(limit);
    Ok(json!(entries.iter().skip(newest).map(views::request).collect::<Vec<_>>()))
}

/// `name=value&…`
struct Query<'a>(&'a str);

impl Query<'_> {
    fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Refused> {
        let parse = |text: Cow<'_, str>| text.parse().map_err(|_| bad(format!("`{name}` is a whole number")));
        self.text(name).map(parse).transpose()
    }

    fn limit(&self) -> Result<usize, Refused> {
        let limit = self.number("limit")?.unwrap_or(100);
        Ok(usize::try_from(limit).unwrap_or(0).min(LIST))
    }
}

/// A part of a URL without its `%41`s; what is no UTF-8 then is replaced.
fn decoded(part: &str) -> Cow<'_, str> {
    if !part.contains('%') {
        return Cow::Borrowed(part);
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = tail.get(if byte.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
