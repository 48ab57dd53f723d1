package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// chart has the common parts of all pictures.
type chart struct {
	title, x, y string
	of          report.Result // the result whose series are drawn
}

// group is a group of bars, one for each contender.
type group struct {
	label  string
	result report.Result
}

// Lengths in points; a browser shows a point as four thirds of a pixel.
const (
	width    vg.Length = 480
	height   vg.Length = 290
	barWidth vg.Length = 30
	dot      vg.Length = 1.6
)

// contenders are the places of a result, in order. Their colours are distinguishable without colour vision too.
var contenders = []struct {
	name  string
	color color.Color
	of    func(report.Result) (*report.Entrant, *float64)
}{
	{"this library", color.RGBA{R: 0x1f, G: 0x4e, B: 0x9e, A: 0xff}, func(r report.Result) (*report.Entrant, *float64) { return r.Setup.Ours, r.Ours }},
	{"River", color.RGBA{R: 0xe6, G: 0x8a, B: 0x1e, A: 0xff}, func(r report.Result) (*report.Entrant, *float64) { return r.Setup.Peer, r.Peer }},
	{"raw SQL", color.RGBA{R: 0xa0, G: 0xa0, B: 0xa0, A: 0xff}, func(r report.Result) (*report.Entrant, *float64) { return r.Setup.Floor, r.Floor }},
}

// hasSeries reports whether every contender of a result has one.
func hasSeries(r report.Result) bool {
	for _, c := range contenders {
		if e, _ := c.of(r); e != nil && e.Series == nil {
			return false
		}
	}
	return true
}

// newPlot returns an empty picture on white, so it is readable on a dark page too.
func newPlot(c chart) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.Padding = vg.Points(8)
	p.Y.Min = 0
	p.Y.Tick.Marker = ticks{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	sans := func(style *text.Style, size float64) {
		style.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)}
	}
	sans(&p.Title.TextStyle, 11)
	for _, style := range []*text.Style{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		sans(style, 9)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{0xdd}
	p.Add(grid)
	return p
}

// lines draws the series of a result.
func lines(c chart) ([]byte, error) {
	p := newPlot(c)
	p.X.Min = 0
	for _, contender := range contenders {
		e, _ := contender.of(c.of)
		if e == nil {
			continue
		}
		line, _, err := curve(e.Series)
		if err != nil {
			return nil, err
		}
		line.Width, line.Color = vg.Points(2), contender.color
		p.Add(line)
		p.Legend.Add(contender.name, line)
	}
	p.Y.Min = 0
	p.Y.Max *= 1.25 // space for the legend
	return render(p)
}

// bars draws medians as bars with their values, and the rounds as dots. A round far above the medians is only counted, so
// it does not make the bars small.
func bars(c chart, groups []group) ([]byte, error) {
	top := 0.0
	for _, g := range groups {
		for _, contender := range contenders {
			if _, value := contender.of(g.result); value != nil {
				top = math.Max(top, *value)
			}
		}
	}
	top *= 1.35 // space for the legend
	p := newPlot(c)
	var dots plotter.XYs
	var labels plotter.XYLabels
	var marks plot.ConstantTicks
	inLegend := make(map[string]bool)
	at, above, rounds := 0.0, 0, 0
	for _, g := range groups {
		begin := at
		for _, contender := range contenders {
			e, value := contender.of(g.result)
			if e == nil {
				continue
			}
			bar, err := plotter.NewBarChart(plotter.Values{*value}, barWidth)
			if err != nil {
				return nil, err
			}
			bar.XMin, bar.Color, bar.LineStyle.Width = at, contender.color, 0
			p.Add(bar)
			if !inLegend[contender.name] {
				inLegend[contender.name] = true
				p.Legend.Add(contender.name, bar)
			}
			highest := *value
			for _, sample := range e.Samples {
				rounds++
				switch {
				case len(e.Samples) == 1:
				case sample > top:
					above++
				default:
					dots = append(dots, plotter.XY{X: at, Y: sample})
					highest = math.Max(highest, sample)
				}
			}
			labels.XYs = append(labels.XYs, plotter.XY{X: at, Y: highest})
			labels.Labels = append(labels.Labels, report.Format(value))
			at++
		}
		marks = append(marks, plot.Tick{Value: (begin + at - 1) / 2, Label: g.label})
		at++
	}
	if err := addDots(p, dots); err != nil {
		return nil, err
	}
	figures, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	figures.Offset.Y = vg.Points(4)
	for i := range figures.TextStyle {
		figures.TextStyle[i].XAlign = text.XCenter
		figures.TextStyle[i].Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(9)}
	}
	p.Add(figures)
	p.X.Tick.Marker, p.X.Tick.Length = marks, 0
	p.X.Min, p.X.Max = -1, at-1
	p.Y.Min, p.Y.Max = 0, top
	setup := groups[0].result.Setup
	version := strings.Fields(setup.Postgres) // followed by the build's platform and compiler
	p.X.Label.Text = fmt.Sprintf("%d cores, %s; ", setup.Cores, strings.Join(version[:min(2, len(version))], " "))
	switch {
	case len(dots) == 0:
		p.X.Label.Text += "one round"
	case above == 0:
		p.X.Label.Text += "medians, the dots are the rounds"
	default:
		p.X.Label.Text += fmt.Sprintf("medians, the dots are the rounds; %d of %d are far above", above, rounds)
	}
	return render(p)
}

func addDots(p *plot.Plot, at plotter.XYs) error {
	if len(at) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: dot, Shape: draw.CircleGlyph{}}
	p.Add(dots)
	return nil
}

// ticks are the usual ticks, with figures formatted as in the tables.
type ticks struct{}

// Ticks implements [plot.Ticker].
func (ticks) Ticks(low, high float64) []plot.Tick {
	marks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range marks {
		switch {
		case marks[i].Label == "":
		case marks[i].Value >= 1000:
			marks[i].Label = report.Format(&marks[i].Value)
		default:
			marks[i].Label = strconv.FormatFloat(marks[i].Value, 'g', 4, 64)
		}
	}
	return marks
}

// render writes a picture. If its font is not installed, one with the same measures replaces it.
func render(p *plot.Plot) ([]byte, error) {
	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, vg.Points(8), -vg.Points(14), vg.Points(8), -vg.Points(8)))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}
