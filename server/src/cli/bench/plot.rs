//! The run over time, as a picture: answers a second by kind above, percentiles of their latency
//! below, on a scale of powers of ten.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::timeline::{Bin, Timeline};

const SIZE: (u32, u32) = (960, 640);
const MARGIN: u32 = 12;
const LABELS: u32 = 64;
const LINE_WIDTH: u32 = 2;
const FONT: (&str, u32) = ("sans-serif", 17);

const ACCEPTED: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const REPLAYED: RGBColor = RGBColor(0x2e, 0x8b, 0x57);
const REFUSED: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);
const WORST: RGBColor = RGBColor(0xd1, 0x49, 0x5b);

/// What is counted of a bin.
type Count = fn(&Bin) -> u64;

/// The lines above.
const COUNTS: [(&str, RGBColor, Count); 3] = [
    ("accepted", ACCEPTED, |bin| bin.accepted),
    ("replayed", REPLAYED, |bin| bin.replayed),
    ("refused", REFUSED, |bin| bin.refused),
];

/// The lines below.
const QUANTILES: [(&str, RGBColor, f64); 3] =
    [("p50", ACCEPTED, 0.5), ("p99", REPLAYED, 0.99), ("p99.9", WORST, 0.999)];

/// A line of a plot.
struct Line {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Why there is no plot.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct PlotError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// Draws `timeline` under `title` into `file`.
///
/// # Errors
/// The file can't be written.
pub(super) fn draw(timeline: &Timeline, title: &str, file: &Path) -> Result<(), PlotError> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, FONT)?;
    let (above, below) = root.split_vertically(SIZE.1 / 2);
    let (counts, latencies) = (counts(timeline), latencies(timeline));
    let end_s = timeline.bins().last().map_or(0.0, |(at, _)| at.as_secs_f64());
    let end_s = end_s + timeline.bin().as_secs_f64();
    chart(&above, "answers a second", &counts, (end_s, 0.0..highest(&counts) * 1.1))?;
    let lowest = points(&latencies).fold(f64::INFINITY, f64::min).clamp(1e-3, 1e6);
    let scale = (lowest / 2.0..highest(&latencies) * 2.0).log_scale();
    chart(&below, "latency, ms", &latencies, (end_s, scale))?;
    root.present()?;
    Ok(())
}

fn counts(timeline: &Timeline) -> Vec<Line> {
    let bin_s = timeline.bin().as_secs_f64();
    let line = |(name, color, count): (&'static str, RGBColor, Count)| {
        #[expect(clippy::cast_precision_loss, reason = "a height on a plot")]
        let points: Vec<_> = timeline
            .bins()
            .map(|(at, bin)| (at.as_secs_f64(), count(bin) as f64 / bin_s))
            .collect();
        Line { name, color, points }
    };
    COUNTS.map(line).into_iter().filter(|line| line.points.iter().any(|it| it.1 > 0.0)).collect()
}

fn latencies(timeline: &Timeline) -> Vec<Line> {
    let line = |(name, color, quantile): (&'static str, RGBColor, f64)| {
        #[expect(clippy::cast_precision_loss, reason = "a height on a plot")]
        let point = |us: u64| us.max(1) as f64 / 1_000.0;
        let points = timeline.bins().filter_map(|(at, bin)| {
            bin.quantile_us(quantile).map(|us| (at.as_secs_f64(), point(us)))
        });
        Line { name, color, points: points.collect() }
    };
    QUANTILES.map(line).into()
}

fn points(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| line.points.iter().map(|point| point.1))
}

fn highest(lines: &[Line]) -> f64 {
    points(lines).fold(1e-3, f64::max)
}

/// Draws `lines` over the seconds to `end_s`, with `heights` as the scale.
fn chart<Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    name: &str,
    lines: &[Line],
    (end_s, heights): (f64, Y),
) -> Result<(), PlotError>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let seconds: Range<f64> = 0.0..end_s;
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(LABELS / 2)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(seconds, heights)?;
    chart.configure_mesh().x_desc("seconds").y_desc(name).light_line_style(TRANSPARENT).draw()?;
    for Line { name, color, points } in lines {
        let style = color.stroke_width(LINE_WIDTH);
        let color = *color;
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(REFUSED);
    labels.draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tally::Kind;
    use super::*;

    #[test]
    fn a_run_becomes_a_picture_with_its_lines_named() {
        let mut timeline = Timeline::new();
        for ms in 0..2_000 {
            timeline.record(Duration::from_millis(ms), Kind::Accepted, 300 + ms);
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run.svg");
        draw(&timeline, "a run", &file).unwrap();
        let picture = std::fs::read_to_string(&file).unwrap();
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        for text in ["a run", "accepted", "p50", "p99.9", "latency, ms"] {
            assert!(picture.contains(text), "{text}");
        }
        assert!(!picture.contains("refused"), "a line without a point");
    }

    #[test]
    fn an_empty_run_and_a_folder_that_is_not_there_are_no_panic() {
        let directory = tempfile::tempdir().unwrap();
        draw(&Timeline::new(), "nothing", &directory.path().join("run.svg")).unwrap();
        let nowhere = directory.path().join("no/such/run.svg");
        assert!(draw(&Timeline::new(), "nothing", &nowhere).is_err());
    }
}
