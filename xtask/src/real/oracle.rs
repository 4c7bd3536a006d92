//! What does the cluster hold, by the word of Kafka's own client? `xtask/java/Oracle.java` on the server's jars.

use std::process::Command;
use std::time::Duration;

use super::history::Stored;
use crate::kafka::{Cluster, classpath};
use crate::run;

/// Kafka's own client beside one cluster.
pub(crate) struct Oracle {
    classpath: String,
    bootstrap: String,
}

impl Oracle {
    pub(crate) fn of(cluster: &Cluster) -> Result<Oracle, String> {
        Ok(Oracle { classpath: classpath(cluster.version)?, bootstrap: cluster.bootstrap() })
    }

    pub(crate) fn create(&self, topic: &str, partitions: u32) -> Result<(), String> {
        self.ask(&["create", topic, &partitions.to_string()]).map(drop)
    }

    /// Ends the sessions of a group's members after this time, under the consumer protocol (KIP-848).
    pub(crate) fn sessions(&self, group: &str, session: Duration) -> Result<(), String> {
        self.ask(&["sessions", group, &session.as_millis().to_string()]).map(drop)
    }

    /// Every record of the topic.
    pub(crate) fn read(&self, topic: &str) -> Result<Vec<Stored>, String> {
        let line = |line: &str| {
            let (partition, rest) = line.split_once(' ')?;
            let (offset, key) = rest.split_once(' ')?;
            Some(Stored {
                partition: partition.parse().ok()?,
                offset: offset.parse().ok()?,
                key: key.to_owned(),
            })
        };
        let text = self.ask(&["read", topic])?;
        text.lines().map(|text| line(text).ok_or_else(|| format!("not a record: {text}"))).collect()
    }

    /// Records between what the group has committed and the end of the topic.
    pub(crate) fn lag(&self, group: &str, topic: &str) -> Result<i64, String> {
        let text = self.ask(&["committed", group, topic])?;
        text.lines()
            .map(|line| {
                let numbers: Vec<i64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
                match numbers.as_slice() {
                    [_, committed, end] => Ok(end - (*committed).max(0)),
                    _ => Err(format!("not a partition: {line}")),
                }
            })
            .sum()
    }

    fn ask(&self, question: &[&str]) -> Result<String, String> {
        let mut java = Command::new("java");
        java.args(["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &self.classpath])
            .arg(run::root().join("xtask/java/Oracle.java"))
            .arg(&self.bootstrap)
            .args(question);
        run::stdout_of(&mut java)
    }
}
