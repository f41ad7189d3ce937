package scheduler

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// Single plugins are measured in one attempt of sampled, chosen by chance, as upstream does it; and for
// no more than filtersMeasured of the nodes that are filtered then: to look at the clock takes longer
// than most filters.
const (
	sampled         = 10
	filtersMeasured = 100
)

// pluginWatch is what a stopwatch knows of single plugins, each by its index in the set.
type pluginWatch struct {
	set    *plugins.Set
	chance *rand.Rand
	on     bool // the attempt at hand is measured
	left   int  // filters that are to be measured in it

	filters []timedFilter
	said    map[said]prometheus.Observer
	asked   [pointCount][32]uint64 // attempts in which they had a say, which are not shown yet
	shown   [pointCount][32]prometheus.Counter
}

// said is a plugin, where it was asked, and what it said.
type said struct {
	plugin int
	at     point
	what   string
}

func (p *pluginWatch) init(set *plugins.Set) {
	p.set, p.chance, p.said = set, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), map[said]prometheus.Observer{}
}

// attempt begins an attempt, and chooses whether it is measured.
func (w *stopwatch) attempt() {
	if w == nil {
		return
	}
	w.begin()
	p := &w.plugins
	if p.on = p.chance.IntN(sampled) == 0; !p.on {
		return
	}
	p.left = filtersMeasured
	for i := len(p.filters); i < len(p.set.All); i++ { // the set may have grown
		p.filters = append(p.filters, timedFilter{watch: w, plugin: i})
	}
}

// measures reports whether single plugins are measured in the attempt at hand.
func (w *stopwatch) measures() bool { return w != nil && w.plugins.on }

// had notes that plugins (bits by index) had a say at a point.
func (w *stopwatch) had(at point, which uint32) {
	if w == nil {
		return
	}
	for ; which != 0; which &= which - 1 {
		w.plugins.asked[at][bits.TrailingZeros32(which)]++
	}
}

// show shows what had has noted.
func (w *stopwatch) show() {
	if w == nil {
		return
	}
	p := &w.plugins
	for _, at := range []point{atPreFilter, atFilter, atScore} {
		for i, plugin := range p.set.All {
			n := &p.asked[at][i]
			if *n == 0 {
				continue
			}
			c := &p.shown[at][i]
			if *c == nil {
				*c = w.asked.WithLabelValues(plugin.Name(), at.String(), w.profile)
			}
			(*c).Add(float64(*n))
			*n = 0
		}
	}
}

// ran notes how long a plugin took to say something.
func (w *stopwatch) ran(plugin int, at point, what string, since time.Time) {
	took := time.Since(since)
	p := &w.plugins
	key := said{plugin, at, what}
	o := p.said[key]
	if o == nil {
		name := "DefaultPreemption"
		if plugin != plugins.NoPlugin {
			name = p.set.All[plugin].Name()
		}
		o = w.runs.WithLabelValues(name, at.String(), what)
		p.said[key] = o
	}
	o.Observe(took.Seconds())
}

// clock is the time, if single plugins are measured in the attempt at hand; zero: they are not.
func (w *stopwatch) clock() (now time.Time) {
	if w.measures() {
		now = time.Now()
	}
	return now
}

// answered notes what a plugin said (nil: it has nothing against it) if it was measured from then on.
func (w *stopwatch) answered(plugin int, at point, why *plugins.Reason, since time.Time) {
	if !since.IsZero() {
		w.ran(plugin, at, verdictOf(why), since)
	}
}

// preFilter has a plugin look at a pod, and measures that.
func (w *stopwatch) preFilter(plugin int, pf plugins.PreFilterer, c *plugins.Cycle) plugins.PreFilterResult {
	began := time.Now()
	r := pf.PreFilter(c)
	what := "Success"
	switch {
	case r.Reject != nil:
		what = verdictOf(r.Reject)
	case r.Skip:
		what = "Skip"
	}
	w.ran(plugin, atPreFilter, what, began)
	return r
}

// filter is the filter of a plugin, measured.
func (w *stopwatch) filter(plugin int, f plugins.Filterer) plugins.Filterer {
	t := &w.plugins.filters[plugin]
	t.Filterer = f
	return t
}

// timedFilter measures a filter as often as it may.
type timedFilter struct {
	plugins.Filterer
	watch  *stopwatch
	plugin int
}

var _ plugins.Filterer = (*timedFilter)(nil)

// Filter is that of the plugin.
func (f *timedFilter) Filter(c *plugins.Cycle, n *snapshot.Node) *plugins.Reason {
	if f.watch.plugins.left <= 0 {
		return f.Filterer.Filter(c, n)
	}
	f.watch.plugins.left--
	began := time.Now()
	why := f.Filterer.Filter(c, n)
	f.watch.ran(f.plugin, atFilter, verdictOf(why), began)
	return why
}

// verdictOf is upstream's name of what a plugin said; nil: it had nothing against it.
func verdictOf(why *plugins.Reason) string {
	switch {
	case why == nil:
		return "Success"
	case why.Err != nil:
		return "Error"
	case why.Final:
		return "UnschedulableAndUnresolvable"
	}
	return "Unschedulable"
}
