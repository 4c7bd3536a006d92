//! Do dependencies point one way? Normal dependencies between our crates, as `cargo metadata` lists them.

use serde_json::Value;

use crate::run;

/// Who may depend on whom. Dev-dependencies may also point at the testkit; a crate that is not here may not exist.
const ARROWS: &[(&str, &[&str])] = &[
    ("prosody-base", &[]),
    ("prosody-wire", &["prosody-base"]),
    ("prosody-state", &["prosody-base"]),
    // A broker that shares the client's code agrees with the client's mistakes: never prosody-wire.
    ("prosody-testkit", &["prosody-base"]),
    ("prosody-runtime", &["prosody-base", "prosody-wire", "prosody-state", "prosody-testkit"]),
    ("prosody-ffi", &["prosody-base", "prosody-runtime"]),
    ("xtask", &[]),
];

/// Dependencies that must be optional: the embedded broker is only behind the feature `mock`.
const OPTIONAL: &[(&str, &str)] = &[("prosody-runtime", "prosody-testkit")];

pub(super) fn check() -> Result<(), String> {
    let text =
        run::stdout_of(run::cargo().args(["metadata", "--format-version=1", "--no-deps", "--locked"]))?;
    let metadata: Value =
        serde_json::from_str(&text).map_err(|problem| format!("cargo metadata: {problem}"))?;
    let problems = violations(&metadata);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn violations(metadata: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let packages = list(metadata, "packages");
    let ours = |name: &str| packages.iter().any(|package| text(package, "name") == name);
    for package in packages {
        let name = text(package, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            problems.push(format!("{name} has no line in xtask/src/check/layers.rs: which layer is it?"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let on = text(dependency, "name");
            // `kind` is null for a normal dependency; a crate's dependency on itself only switches its features on.
            if !ours(on) || on == name || dependency.get("kind").is_some_and(|kind| !kind.is_null()) {
                continue;
            }
            if !allowed.contains(&on) {
                problems.push(format!("{name} depends on {on}; ARCHITECTURE.md has no such arrow"));
            }
            let optional = dependency.get("optional").and_then(Value::as_bool) == Some(true);
            if OPTIONAL.contains(&(name, on)) && !optional {
                problems.push(format!("{name} must depend on {on} only behind a feature"));
            }
        }
    }
    problems
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::violations;
    use serde_json::json;

    fn package(name: &str, dependencies: &serde_json::Value) -> serde_json::Value {
        json!({ "name": name, "dependencies": dependencies })
    }

    #[test]
    fn an_arrow_that_points_back_is_told_and_a_dev_dependency_is_not() {
        let metadata = json!({ "packages": [
            package("prosody-base", &json!([])),
            package("prosody-wire", &json!([
                { "name": "prosody-base", "kind": null },
                { "name": "prosody-testkit", "kind": "dev" },
            ])),
            package("prosody-testkit", &json!([{ "name": "prosody-wire", "kind": null }])),
        ]});
        assert_eq!(
            violations(&metadata),
            ["prosody-testkit depends on prosody-wire; ARCHITECTURE.md has no such arrow"]
        );
    }

    #[test]
    fn the_embedded_broker_stays_behind_its_feature() {
        let with = |optional: bool| {
            json!({ "packages": [
                package("prosody-testkit", &json!([])),
                package("prosody-runtime", &json!([{ "name": "prosody-testkit", "kind": null, "optional": optional }])),
            ]})
        };
        assert!(violations(&with(true)).is_empty());
        assert_eq!(violations(&with(false)).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_layer() {
        let metadata = json!({ "packages": [package("prosody-extra", &json!([]))] });
        assert_eq!(violations(&metadata).len(), 1);
    }
}
