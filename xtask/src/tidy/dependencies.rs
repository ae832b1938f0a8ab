//! Who may depend on whom. `wal` knows bytes, `engine` knows `wal`, `bridge` knows the engine's
//! events and the log's reader, `server` knows all three. Never the other way.

use super::Problem;
use super::tree::{File, Tree};

/// What one crate may depend on, of this workspace.
struct Rule {
    name: &'static str,
    /// In what is shipped.
    product: &'static [&'static str],
    /// In its tests besides.
    tests: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule { name: "wal", product: &[], tests: &[] },
    Rule { name: "migrations", product: &[], tests: &[] },
    Rule { name: "engine", product: &["wal"], tests: &[] },
    Rule { name: "bridge", product: &["engine", "migrations", "wal"], tests: &["functions"] },
    Rule {
        name: "server",
        product: &["bridge", "engine", "wal"],
        tests: &["functions", "migrations"],
    },
    Rule { name: "functions", product: &["engine"], tests: &[] },
    Rule { name: "sim", product: &["bridge", "engine", "wal"], tests: &["functions"] },
    Rule { name: "sim/fuzz", product: &["engine", "wal"], tests: &[] },
    Rule { name: "benches", product: &["bridge", "engine", "wal"], tests: &["migrations"] },
    Rule { name: "benches/uring", product: &["wal"], tests: &[] },
    Rule { name: "loom-tests", product: &["engine", "wal"], tests: &[] },
    Rule { name: "xtask", product: &[], tests: &[] },
];

/// Features for campaigns and measurements, which must never be in what is shipped.
const CAMPAIGN_FEATURES: &[&str] = &["\"sim\"", "\"planted-bugs\"", "\"internals\""];

/// Crates with lints of their own: those of the workspace forbid what they cannot do without. No
/// other crate knows them.
const UNSAFE_CRATES: &[&str] = &["benches/uring"];

/// The crates that a campaign or a measurement is made of, and that nobody ships.
const TOOLS: &[&str] = &["sim", "sim/fuzz", "benches", "loom-tests", "xtask"];

/// One dependency of a manifest.
struct Dependency<'a> {
    package: &'a str,
    /// What the manifest says of it: a version, features.
    value: &'a str,
    for_tests: bool,
    line: usize,
}

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        let Some(name) = file.path.strip_suffix("/Cargo.toml") else { continue };
        match RULES.iter().find(|rule| rule.name == name) {
            Some(rule) => problems.extend(check_manifest(file, rule)),
            None => problems.push(Problem::at(
                &file.path,
                0,
                "this crate has no rule: say in xtask/src/tidy/dependencies.rs what it may know",
            )),
        }
    }
    problems
}

fn check_manifest(file: &File, rule: &Rule) -> Vec<Problem> {
    let is_ours = |name: &str| RULES.iter().any(|rule| rule.name == name);
    let is_allowed = |dependency: &Dependency<'_>| {
        rule.product.contains(&dependency.package)
            || dependency.for_tests && rule.tests.contains(&dependency.package)
    };
    let asks_for_campaign = |dependency: &Dependency<'_>| {
        !TOOLS.contains(&rule.name)
            && !dependency.for_tests
            && CAMPAIGN_FEATURES.iter().any(|feature| dependency.value.contains(feature))
    };
    let mut problems = Vec::new();
    for dependency in dependencies(&file.text).iter().filter(|it| is_ours(it.package)) {
        let Dependency { package, line, .. } = *dependency;
        if !is_allowed(dependency) {
            let Rule { name, product, .. } = rule;
            let message = format!("{name} may not depend on {package}: it may know {product:?}");
            problems.push(Problem::at(&file.path, line, message));
        }
        if asks_for_campaign(dependency) {
            let message = format!("a campaign's feature of {package} would be shipped");
            problems.push(Problem::at(&file.path, line, message));
        }
    }
    let has_own_lints =
        UNSAFE_CRATES.contains(&rule.name) && file.text.contains("unsafe_code = \"deny\"");
    if !has_own_lints && !file.text.contains("[lints]\nworkspace = true\n") {
        let message = "takes no part in the workspace's lints: `[lints] workspace = true`";
        problems.push(Problem::at(&file.path, 0, message));
    }
    problems
}

/// The dependencies in a manifest: of every table whose name ends in `dependencies`, in both
/// spellings (`[dependencies] wal = ..` and `[dependencies.wal]`).
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        let line_number = index + 1;
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').trim();
            if let Some((table, package)) = section.rsplit_once('.')
                && table.ends_with("dependencies")
            {
                let for_tests = table.ends_with("dev-dependencies");
                found.push(Dependency { package, value: "", for_tests, line: line_number });
            }
        } else if section.ends_with("dependencies")
            && let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            let key = key.split('.').next().unwrap_or(key).trim().trim_matches('"');
            let package = renamed(value).unwrap_or(key);
            let for_tests = section.ends_with("dev-dependencies");
            found.push(Dependency { package, value, for_tests, line: line_number });
        }
    }
    found
}

/// The package in `{ package = "wal", .. }`.
fn renamed(value: &str) -> Option<&str> {
    let (_, after) = value.split_once("package")?;
    after.trim_start().strip_prefix('=')?.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "\n[lints]\nworkspace = true\n";

    fn lines(path: &str, manifest: &str) -> Vec<usize> {
        let tree = Tree::of(&[(path, &format!("{manifest}{LINTS}"))]);
        check(&tree).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn a_crate_outside_the_workspaces_lints_is_found() {
        let tree = Tree::of(&[("wal/Cargo.toml", "[package]\nname = \"wal\"\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn an_edge_upward_is_found_in_every_spelling() {
        for manifest in [
            "[dependencies]\nengine.workspace = true\n",
            "[dependencies]\nengine = { workspace = true }\n",
            "[dependencies]\nx = { package = \"engine\", path = \"../engine\" }\n",
            "[package]\n[dependencies.engine]\npath = \"../engine\"\n",
            "[target.'cfg(loom)'.dependencies]\nengine.workspace = true\n",
            "[build-dependencies]\nengine.workspace = true\n",
            "[dev-dependencies]\nengine.workspace = true\n",
        ] {
            assert_eq!(lines("wal/Cargo.toml", manifest), [2], "{manifest}");
        }
    }

    #[test]
    fn edges_downward_and_other_crates_are_fine() {
        let manifest = "[dependencies]\nengine.workspace = true\nwal.workspace = true\n\
                        sqlx = \"0.9\"\n[dev-dependencies]\nmigrations.workspace = true\n";
        assert!(lines("server/Cargo.toml", manifest).is_empty());
        assert!(lines("wal/Cargo.toml", "[features]\nengine = []\n# engine = 1\n").is_empty());
    }

    #[test]
    fn what_tests_may_know_the_product_may_not() {
        let manifest = "[dependencies]\nmigrations.workspace = true\n";
        assert_eq!(lines("server/Cargo.toml", manifest), [2]);
    }

    #[test]
    fn a_campaigns_feature_may_not_be_shipped() {
        let features = "{ workspace = true, features = [\"planted-bugs\"] }";
        let product = format!("[dependencies]\nwal = {features}\n");
        assert_eq!(lines("bridge/Cargo.toml", &product), [2]);
        assert!(lines("sim/Cargo.toml", &product).is_empty());
        let tests = format!("[dev-dependencies]\nwal = {features}\n");
        assert!(lines("bridge/Cargo.toml", &tests).is_empty());
    }

    #[test]
    fn a_crate_without_a_rule_is_found() {
        assert_eq!(lines("extra/Cargo.toml", "[package]\nname = \"extra\"\n"), [0]);
    }
}
