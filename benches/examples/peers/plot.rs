//! The plots: what each contender reached, as bars.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::{Series, Spread};
use crate::report::{Row, Table, thousands};
use crate::trouble::Trouble;

const WIDTH: i32 = 960;
const LINE: i32 = 22;
const MARGIN: i32 = 12;
/// Where the bars begin: before it stand the names.
const BARS_AT: i32 = 330;
/// Room for the figure behind the longest bar.
const FIGURE_WIDTH: i32 = 110;
const FONT_SIZE: i32 = 14;

const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const THEIRS: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// The range of the rounds, over the bar.
const RANGE: RGBColor = RGBColor(0xd1, 0x49, 0x5b);

/// A plot: its file, its title, which rows, and what of them.
struct Plot {
    file: &'static str,
    title: &'static str,
    is_in: fn(&str) -> bool,
    of: fn(&Series) -> &Spread,
    figure: fn(f64) -> String,
}

const PLOTS: &[Plot] = &[
    Plot {
        file: "resp.svg",
        title: "Redis protocol: answers a second",
        is_in: |name| name.starts_with("Redis") && !name.contains("open loop"),
        of: |series| &series.per_second,
        figure: thousands,
    },
    Plot {
        file: "http.svg",
        title: "HTTP: answers a second",
        is_in: |name| name.starts_with("HTTP") && !name.contains("open loop"),
        of: |series| &series.per_second,
        figure: thousands,
    },
    Plot {
        file: "latency.svg",
        title: "Open loop: 99th percentile of the latency, ms",
        is_in: |name| name.contains("open loop"),
        of: |series| &series.p99_us,
        figure: |us| format!("{:.2}", us / 1_000.0),
    },
    Plot {
        file: "in-process.svg",
        title: "In process: durable reservations a second",
        is_in: |name| name.starts_with("in process") || name.starts_with("recovery"),
        of: |series| &series.per_second,
        figure: thousands,
    },
];

/// Draws what `table` has rows for into `folder`; the files and their titles.
pub(crate) fn draw(
    table: &Table,
    folder: &Path,
) -> Result<Vec<(&'static str, &'static str)>, Trouble> {
    let mut drawn = Vec::new();
    for plot in PLOTS {
        let groups: Vec<_> =
            table.groups().filter(|group| (plot.is_in)(group[0].workload)).collect();
        if groups.is_empty() {
            continue;
        }
        let failed = |error: &dyn std::fmt::Display| Trouble::Plot {
            file: plot.file.to_owned(),
            said: error.to_string(),
        };
        draw_one(plot, &groups, &folder.join(plot.file)).map_err(|error| failed(&error))?;
        drawn.push((plot.file, plot.title));
    }
    Ok(drawn)
}

type DrawError = Box<dyn std::error::Error>;

fn draw_one(plot: &Plot, groups: &[&[Row]], file: &Path) -> Result<(), DrawError> {
    let lines = groups.iter().map(|group| group.len() + 2).sum::<usize>() + 2;
    let height = LINE * i32::try_from(lines)?;
    let root = SVGBackend::new(file, (WIDTH.unsigned_abs(), height.unsigned_abs()));
    let root = root.into_drawing_area();
    root.fill(&WHITE)?;
    let style = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let left = Pos::new(HPos::Left, VPos::Center);
    let right = Pos::new(HPos::Right, VPos::Center);
    let mut y = LINE;
    root.draw(&Text::new(plot.title, (MARGIN, y), style(FONT_SIZE + 4).pos(left)))?;
    y += LINE;
    for group in groups {
        y += LINE;
        root.draw(&Text::new(group[0].workload, (MARGIN, y), style(FONT_SIZE).pos(left)))?;
        y += LINE;
        let medians = group.iter().map(|row| (plot.of)(&row.series).range().1);
        let longest = medians.fold(f64::MIN_POSITIVE, f64::max);
        #[expect(clippy::cast_possible_truncation, reason = "a place on a plot")]
        let x = |figure: f64| {
            BARS_AT + (f64::from(WIDTH - BARS_AT - FIGURE_WIDTH) * figure / longest) as i32
        };
        for (index, row) in group.iter().enumerate() {
            let spread = (plot.of)(&row.series);
            let (median, (low, high)) = (spread.median(), spread.range());
            let color = if index == 0 { OURS } else { THEIRS };
            let name = Text::new(row.contender, (BARS_AT - MARGIN, y), style(FONT_SIZE).pos(right));
            root.draw(&name)?;
            let bar = [(BARS_AT, y - LINE / 3), (x(median).max(BARS_AT + 1), y + LINE / 3)];
            root.draw(&Rectangle::new(bar, color.filled()))?;
            root.draw(&PathElement::new([(x(low), y), (x(high), y)], RANGE.stroke_width(2)))?;
            let place = (x(high) + MARGIN / 2, y);
            root.draw(&Text::new((plot.figure)(median), place, style(FONT_SIZE).pos(left)))?;
            y += LINE;
        }
    }
    root.present()?;
    Ok(())
}
