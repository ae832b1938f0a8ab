//! Words of the document as HTML: nothing in them is markup but what is written here.

/// `text`, which stands for itself.
pub(super) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Paragraphs and lists, with `code` and **weight**: as much of Markdown as descriptions use.
pub(super) fn prose(text: &str) -> String {
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(block).collect()
}

fn block(text: &str) -> String {
    if text.lines().all(|line| line.starts_with("- ")) {
        let items = text.lines().filter_map(|line| line.strip_prefix("- "));
        let items: String = items.map(|item| format!("<li>{}", inline(item))).collect();
        return format!("<ul>{items}</ul>");
    }
    format!("<p>{}</p>", inline(text))
}

fn inline(text: &str) -> String {
    let html = paired(&escaped(text), "`", ["<code>", "</code>"]);
    paired(&html, "**", ["<strong>", "</strong>"])
}

/// Every other `mark` opens, the others close; one without a partner stands for itself.
fn paired(text: &str, mark: &str, tags: [&str; 2]) -> String {
    let parts: Vec<&str> = text.split(mark).collect();
    let pairs = (parts.len() - 1) / 2 * 2;
    let mut html = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            html.push_str(if index > pairs { mark } else { tags[(index - 1) % 2] });
        }
        html.push_str(part);
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_never_markup() {
        assert_eq!(prose("<b onclick='x'>&"), "<p>&lt;b onclick=&#39;x&#39;&gt;&amp;</p>");
        assert_eq!(prose("`<b>`"), "<p><code>&lt;b&gt;</code></p>");
    }

    #[test]
    fn paragraphs_lists_code_and_weight_are_known() {
        assert_eq!(prose("a\n\n- `b`: c\n- d"), "<p>a</p><ul><li><code>b</code>: c<li>d</ul>");
        assert_eq!(prose("**a** `b` `c"), "<p><strong>a</strong> <code>b</code> `c</p>");
        assert_eq!(prose(""), "");
    }
}
