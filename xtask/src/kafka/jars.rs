//! Which Kafkas are there, and where do their jars come from?

use std::fs;
use std::process::Command;

use crate::progress::doing;
use crate::run;

/// A release of Apache Kafka that the tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// As `--version` takes it.
    pub(crate) name: &'static str,
    /// As Maven knows it.
    pub(crate) full: &'static str,
}

/// The last release that still speaks the oldest protocols, and a current one.
pub(crate) const VERSIONS: [Version; 2] =
    [Version { name: "3.9", full: "3.9.1" }, Version { name: "4", full: "4.2.0" }];

impl Version {
    /// By short or full name.
    pub(crate) fn named(name: &str) -> Result<Version, String> {
        VERSIONS.into_iter().find(|version| version.name == name || version.full == name).ok_or_else(|| {
            format!("--version {name}: there are {}", VERSIONS.map(|version| version.name).join(" and "))
        })
    }
}

/// The jars of a server, which hold the Java client too, as `java -cp` takes them. Downloaded once.
pub(crate) fn classpath(version: Version) -> Result<String, String> {
    let folder = run::scratch("kafka-jars")?.join(version.full);
    let complete = folder.join("complete");
    if !complete.is_file() {
        doing(&format!("fetching the jars of Kafka {}", version.full));
        fs::create_dir_all(&folder).map_err(|problem| format!("{}: {problem}", folder.display()))?;
        let pom = folder.join("pom.xml");
        fs::write(&pom, pom_of(version)).map_err(|problem| format!("{}: {problem}", pom.display()))?;
        let mut maven = Command::new("mvn");
        maven
            .args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"])
            .current_dir(&folder);
        run::step("mvn dependency:copy-dependencies", "setup-kafka-jars", &mut maven)?;
        fs::write(&complete, "").map_err(|problem| format!("{}: {problem}", complete.display()))?;
    }
    Ok(folder.join("lib/*").display().to_string())
}

fn pom_of(version: Version) -> String {
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        )
    };
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>prosody</groupId><artifactId>kafka-server</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>{}{}</dependencies></project>\n",
        dependency("org.apache.kafka", "kafka_2.13", version.full),
        dependency("org.slf4j", "slf4j-simple", "1.7.36"),
    )
}
