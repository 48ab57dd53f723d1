package picture

import (
	"errors"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// Growth draws the median times of claims over the sizes of each dimension.
func Growth(path string) (Picture, error) {
	results, err := report.ReadFile(path)
	if err != nil {
		return Picture{}, err
	}
	p := newPlot(chart{title: "A claim of ten as the database grows (lower and flatter is better)", x: "number, by powers of ten", y: "milliseconds, median"})
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	drawn := 0
	for _, r := range results {
		sized, is := strings.CutSuffix(r.Name, ": claim of 10, p50")
		if !is {
			continue
		}
		_, dimension, _ := strings.Cut(sized, " ")
		line, dots, err := curve(r.Setup.Ours.Series)
		if err != nil {
			return Picture{}, err
		}
		line.Width, line.Color = vg.Points(1.5), plotutil.Color(drawn)
		line.Dashes = plotutil.Dashes(drawn / 7)
		dots.Color, dots.Radius = line.Color, dot
		p.Add(line, dots)
		p.Legend.Add(dimension, line, dots)
		drawn++
	}
	if drawn == 0 {
		return Picture{}, errors.New("has no claims in growing databases")
	}
	p.Y.Min = 0
	p.Y.Max *= 2.2 // space for the legend
	svg, err := render(p)
	return Picture{"growth.svg", svg}, err
}

// curve returns the line and the dots of a series.
func curve(s *report.Series) (*plotter.Line, *plotter.Scatter, error) {
	points := make(plotter.XYs, len(s.At))
	for i := range points {
		points[i].X, points[i].Y = s.At[i], s.Values[i]
	}
	return plotter.NewLinePoints(points)
}
