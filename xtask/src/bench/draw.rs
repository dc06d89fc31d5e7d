//! Draws a figure as SVG: the same bytes for the same figure.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::{Axis, Figure, Line, Look, Panel, Scale, Stroke};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Two of them are about as wide as a page of a code host.
const PANEL_WIDTH: u32 = 480;
const WIDTH_MIN: u32 = 640;
const HEIGHT: u32 = 400;
/// Above the panels: title and legend. Below: the source.
const HEAD: u32 = 68;
const FOOT: u32 = 26;
const MARGIN: i32 = 16;

const TITLE_PIXELS: f64 = 18.0;
const TEXT_PIXELS: f64 = 14.0;
const SMALL_PIXELS: f64 = 12.0;
/// Width of a letter in a sans-serif font, as a part of the font's size.
const LETTER_PART: f64 = 0.56;

const INK: RGBColor = RGBColor(36, 41, 47);
const PALE_INK: RGBColor = RGBColor(87, 96, 106);
const GRID: RGBColor = RGBColor(222, 226, 230);
/// Opaque, so that dark pages show the same picture.
const PAPER: RGBColor = RGBColor(255, 255, 255);

/// The SVG document.
pub fn svg(figure: &Figure) -> Result<String> {
    let panels = u32::try_from(figure.panels.len())?;
    let mut text = String::new();
    let size = ((PANEL_WIDTH * panels).max(WIDTH_MIN), HEIGHT);
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    draw(&root, figure).map_err(|error| anyhow!("{}: {error}", figure.name))?;
    drop(root);
    // The drawing library ends the document without one.
    Ok(text.trim_end().to_owned() + "\n")
}

fn draw(root: &Area, figure: &Figure) -> Result<()> {
    root.fill(&PAPER)?;
    let (width, height) = root.dim_in_pixel();
    let (width, height) = (i32::try_from(width)?, i32::try_from(height)?);
    let frame = Rectangle::new([(0, 0), (width - 1, height - 1)], GRID);
    root.draw(&frame)?;
    write(root, figure.title, (MARGIN, 14), TITLE_PIXELS, INK)?;
    draw_legend(root, figure)?;
    write(root, &figure.source, (MARGIN, height - 22), SMALL_PIXELS, PALE_INK)?;
    let (_, below) = root.split_vertically(HEAD);
    let (middle, _) = below.split_vertically(HEIGHT - HEAD - FOOT);
    for (area, panel) in middle.split_evenly((1, figure.panels.len())).iter().zip(&figure.panels) {
        draw_panel(area, panel)?;
    }
    Ok(())
}

fn write(area: &Area, text: &str, at: (i32, i32), pixels: f64, colour: RGBColor) -> Result<()> {
    area.draw(&Text::new(text.to_owned(), at, style(pixels, colour)))?;
    Ok(())
}

/// The backend makes letters smaller by 1.24 than their font says.
fn font(pixels: f64) -> FontDesc<'static> {
    ("sans-serif", pixels * 1.24).into_font()
}

fn style(pixels: f64, colour: RGBColor) -> TextStyle<'static> {
    font(pixels).color(&colour).pos(Pos::new(HPos::Left, VPos::Top))
}

/// The names of all lines that have points, each once.
fn draw_legend(root: &Area, figure: &Figure) -> Result<()> {
    let mut shown: Vec<&str> = Vec::new();
    let mut left = MARGIN;
    for line in figure.panels.iter().flat_map(|panel| &panel.lines) {
        if line.points.is_empty() || shown.contains(&line.name) {
            continue;
        }
        shown.push(line.name);
        let y = 51;
        root.draw(&PathElement::new([(left, y), (left + 26, y)], stroke(line.look)))?;
        draw_dots(root, line.look, [(left + 13, y)].into_iter())?;
        write(root, line.name, (left + 32, y - 7), TEXT_PIXELS, INK)?;
        left += 32 + letters(line.name) + 20;
    }
    Ok(())
}

/// Pixels that a text takes.
fn letters(text: &str) -> i32 {
    // A name in a legend has less than a hundred letters.
    let count = i32::try_from(text.chars().count()).unwrap_or(100);
    #[allow(clippy::cast_possible_truncation)] // far below 2^31
    let letter = (TEXT_PIXELS * LETTER_PART).ceil() as i32;
    count * letter
}

fn paint(look: Look) -> RGBColor {
    let (red, green, blue) = look.colour;
    RGBColor(red, green, blue)
}

fn stroke(look: Look) -> ShapeStyle {
    let width = match look.stroke {
        Stroke::Thick => 4,
        Stroke::Thin => 2,
        Stroke::Hollow => 1,
    };
    paint(look).stroke_width(width)
}

fn draw_dots(area: &Area, look: Look, places: impl Iterator<Item = (i32, i32)>) -> Result<()> {
    for place in places {
        for dot in dots(look) {
            area.draw(&Circle::new(place, dot.0, dot.1))?;
        }
    }
    Ok(())
}

/// The circles of one point, from below.
fn dots(look: Look) -> Vec<(i32, ShapeStyle)> {
    match look.stroke {
        Stroke::Thick => vec![(5, paint(look).filled())],
        Stroke::Thin => vec![(4, paint(look).filled())],
        Stroke::Hollow => vec![(4, PAPER.filled()), (4, paint(look).stroke_width(1))],
    }
}

/// An axis in pixels.
struct Marked {
    scale: Scale,
    marks: Vec<f64>,
}

impl Marked {
    fn of(axis: &Axis) -> Self {
        Self { scale: axis.scale, marks: axis.marks.clone() }
    }

    /// The place of a value where equal distances are equal steps.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let range = self.range();
        let (low, high) = (self.place(range.start), self.place(range.end));
        let part = (self.place(*value) - low) / (high - low);
        #[allow(clippy::cast_possible_truncation)] // a picture is less than 2^31 pixels wide
        let pixels = (part * f64::from(last - first)).round() as i32;
        first.saturating_add(pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { vec![] } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.marks.first().copied().unwrap_or(0.0)..self.marks.last().copied().unwrap_or(1.0)
    }
}

fn draw_panel(area: &Area, panel: &Panel) -> Result<()> {
    write(area, panel.title, (MARGIN, 6), TEXT_PIXELS, INK)?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(32)
        .margin_left(MARGIN)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(46)
        .build_cartesian_2d(Marked::of(&panel.x), Marked::of(&panel.y))?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(PALE_INK)
        .label_style(font(SMALL_PIXELS).color(&INK))
        .set_all_tick_mark_size(4)
        .axis_desc_style(font(TEXT_PIXELS).color(&INK))
        .x_desc(panel.x.name)
        .x_label_formatter(&|mark| (panel.x.label)(*mark))
        .y_label_formatter(&|mark| (panel.y.label)(*mark))
        .draw()?;
    // The subject is drawn last, above its peers.
    let mut lines: Vec<&Line> = panel.lines.iter().collect();
    lines.sort_by_key(|line| line.look.stroke == Stroke::Thick);
    for line in lines {
        chart.draw_series(LineSeries::new(line.points.iter().copied(), stroke(line.look)))?;
        for (size, dot) in dots(line.look) {
            chart.draw_series(line.points.iter().map(|point| Circle::new(*point, size, dot)))?;
        }
    }
    Ok(())
}
