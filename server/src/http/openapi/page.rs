//! The document as one page of HTML: what a person reads behind a closed network.
//!
//! No script and nothing from elsewhere, so that its policy can forbid both.

mod schema;
mod text;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::operation::Tag;
use schema::{kind, rows};
use text::{escaped, prose};

const STYLE: &str = include_str!("page.css");

/// The page's style, as a source of its policy.
pub(super) fn style_source() -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(STYLE)))
}

/// `document` as a page. What a document may hold and ours does not is left out.
pub(super) fn render(document: &Value) -> String {
    let mut page = Page { document, html: String::new() };
    page.put(format_args!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n",
        title = escaped(string(&document["info"]["title"])),
    ));
    page.contents();
    page.put(format_args!("<main>\n"));
    page.opening();
    for (_, tag, about) in Tag::ALL {
        page.put(format_args!("<h2 id=\"tag-{tag}\">{tag}</h2>\n{}\n", prose(about)));
        for (path, method, operation) in page.operations(tag) {
            page.operation(path, method, operation);
        }
    }
    page.schemas();
    page.put(format_args!("</main>\n</html>\n"));
    page.html
}

struct Page<'a> {
    document: &'a Value,
    html: String,
}

impl<'a> Page<'a> {
    fn put(&mut self, html: std::fmt::Arguments<'_>) {
        // Writing to a String can't fail.
        let _ = self.html.write_fmt(html);
    }

    /// What `value` refers to, or itself.
    fn resolved(&self, value: &'a Value) -> &'a Value {
        let pointer = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        pointer.and_then(|pointer| self.document.pointer(pointer)).unwrap_or(value)
    }

    /// Path, method and operation of all that have `tag`.
    fn operations(&self, tag: &str) -> Vec<(&'a str, &'a str, &'a Value)> {
        let paths = fields(&self.document["paths"]);
        let all = paths.flat_map(|(path, methods)| {
            fields(methods).map(move |(method, operation)| (path, method, operation))
        });
        all.filter(|(.., operation)| operation["tags"][0] == tag).collect()
    }

    fn contents(&mut self) {
        self.put(format_args!("<nav>\n"));
        for (_, tag, _) in Tag::ALL {
            self.put(format_args!("<h2><a href=\"#tag-{tag}\">{tag}</a></h2>\n<ul>\n"));
            for (.., operation) in self.operations(tag) {
                let (id, summary) = (string(&operation["operationId"]), &operation["summary"]);
                let summary = escaped(string(summary));
                self.put(format_args!("<li><a href=\"#{id}\">{summary}</a>\n"));
            }
            self.put(format_args!("</ul>\n"));
        }
        self.put(format_args!("<h2><a href=\"#schemas\">schemas</a></h2>\n</nav>\n"));
    }

    fn opening(&mut self) {
        let info = &self.document["info"];
        self.put(format_args!(
            "<h1>{}</h1>\n<p class=\"who\">{} Version {}, {}. \
             <a href=\"/openapi.json\">openapi.json</a></p>\n{}\n",
            escaped(string(&info["title"])),
            escaped(string(&info["summary"])),
            escaped(string(&info["version"])),
            escaped(string(&info["license"]["name"])),
            prose(string(&info["description"])),
        ));
        self.put(format_args!("<h2>credentials</h2>\n<table>\n"));
        for (name, scheme) in fields(&self.document["components"]["securitySchemes"]) {
            let about = prose(string(&scheme["description"]));
            self.put(format_args!("<tr><td><code>{name}</code><td>{about}\n"));
        }
        self.put(format_args!("</table>\n"));
    }

    fn operation(&mut self, path: &str, method: &str, operation: &'a Value) {
        self.put(format_args!(
            "<section id=\"{}\">\n<h3><span class=\"method\">{}</span> <code>{}</code></h3>\n\
             <p><strong>{}</strong> <span class=\"who\">{}</span></p>\n{}\n",
            string(&operation["operationId"]),
            method.to_ascii_uppercase(),
            escaped(path),
            escaped(string(&operation["summary"])),
            who(&operation["security"]),
            prose(string(&operation["description"])),
        ));
        self.parameters(&operation["parameters"]);
        if let Some(content) = operation["requestBody"]["content"].as_object() {
            let needed = operation["requestBody"]["required"] == true;
            let needed = if needed { "" } else { " <span class=\"need\">may be left out</span>" };
            self.put(format_args!("<h4>Body{needed}</h4>\n{}\n", contents(content)));
        }
        self.put(format_args!("<h4>Answers</h4>\n<table>\n"));
        for (status, response) in fields(&operation["responses"]) {
            let response = self.resolved(response);
            let about = prose(string(&response["description"]));
            let content = response["content"].as_object();
            // Problem documents are all alike, and described once.
            let content = content.filter(|_| status.starts_with('2')).map(contents);
            let content = content.unwrap_or_default();
            self.put(format_args!("<tr><th>{status}<td>{about}{content}\n"));
        }
        self.put(format_args!("</table>\n</section>\n"));
    }

    fn parameters(&mut self, parameters: &Value) {
        let Some(parameters) = parameters.as_array() else { return };
        self.put(format_args!("<h4>Parameters</h4>\n<table>\n"));
        for parameter in parameters {
            let needed = if parameter["required"] == true { "required" } else { "" };
            self.put(format_args!(
                "<tr><td><code>{}</code> <span class=\"need\">{} {needed}</span><td>{}<td>{}\n",
                escaped(string(&parameter["name"])),
                string(&parameter["in"]),
                kind(&parameter["schema"]),
                prose(string(&parameter["description"])),
            ));
        }
        self.put(format_args!("</table>\n"));
    }

    fn schemas(&mut self) {
        self.put(format_args!("<h2 id=\"schemas\">schemas</h2>\n"));
        for (name, schema) in fields(&self.document["components"]["schemas"]) {
            let (about, rows) = (prose(string(&schema["description"])), rows(schema));
            self.put(format_args!(
                "<section id=\"schema-{name}\">\n<h3>{name}</h3>\n{about}\n{rows}</section>\n"
            ));
        }
    }
}

/// Media types and what they hold.
fn contents(content: &Map<String, Value>) -> String {
    let lines = content.iter().map(|(media, content)| {
        let schema = &content["schema"];
        let about = prose(string(&schema["description"]));
        format!("<p><code>{}</code> {}</p>{about}", escaped(media), kind(schema))
    });
    lines.collect()
}

fn who(security: &Value) -> String {
    let schemes = security.as_array().into_iter().flatten().filter_map(Value::as_object);
    let names: Vec<_> = schemes.flat_map(Map::keys).map(String::as_str).collect();
    match names.as_slice() {
        [] => "anyone".to_owned(),
        names => names.join(" or "),
    }
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi::document::DOCUMENT;

    #[test]
    fn every_operation_and_every_schema_is_on_the_page_and_every_link_leads_somewhere() {
        let page = render(&DOCUMENT);
        for (path, methods) in fields(&DOCUMENT["paths"]) {
            assert!(page.contains(&format!("<code>{path}</code></h3>")), "{path}");
            for (_, operation) in fields(methods) {
                let id = string(&operation["operationId"]);
                assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
            }
        }
        for (name, _) in fields(&DOCUMENT["components"]["schemas"]) {
            assert!(page.contains(&format!("<section id=\"schema-{name}\">")), "{name}");
        }
        for link in page.split("href=\"#").skip(1) {
            let target = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
        }
    }

    #[test]
    fn the_page_asks_nobody_for_anything() {
        let page = render(&DOCUMENT);
        for foreign in ["<script", "<link", "<img", "<iframe", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<style>").count(), 1);
        assert!(!page.contains(" style="), "the policy forbids styles at elements");
    }
}
