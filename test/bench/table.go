package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// results are the values that were measured.
type results map[measure]float64

// duration sets a measure of time.
func (r results) duration(m measure, d time.Duration) { r[m] = m.unit.of(d) }

// samples are all values of measures that are taken often, because single ones differ: a
// collection of the server's falls into them or not. Their medians are the results.
type samples map[measure][]float64

// spread says between what the values of a measure were.
func (s samples) spread(m measure) string {
	values := s[m]
	if len(values) == 0 {
		return ""
	}
	least, _, _ := strings.Cut(m.unit.format(slices.Min(values)), " ")
	most, _, _ := strings.Cut(m.unit.format(slices.Max(values)), " ")
	return fmt.Sprintf(" (%s to %s)", least, most)
}

// add joins the values of another round.
func (s samples) add(round samples) {
	for m, values := range round {
		s[m] = append(s[m], values...)
	}
}

// table writes the results as a Markdown table, in order, and says how many
// bars there are and how many of them are met. Figures from elsewhere that were
// measured in the same run take the place of those that are known; what was measured
// often has its least and most value in brackets. A column that nothing stands in is
// left out.
func (r results) table(measured results, all samples) (text string, met, bars int) {
	rows := [][]string{{"", "measured", "first version", "goal", "elsewhere", "of it"}}
	cell := func(m measure, to bar, v float64) string {
		if to == (bar{}) {
			return ""
		}
		bars++
		sign, mark := "<", "**missed**"
		if to.atLeast {
			sign = ">"
		}
		ok, ratio := to.met(v)
		if ok {
			met++
			mark = "met"
		}
		return fmt.Sprintf("%s %s, %s (%s)", sign, m.unit.format(to.value), mark, times(ratio))
	}
	for _, m := range order {
		v, ok := r[m]
		if !ok {
			continue
		}
		elsewhere, ratio := "", ""
		if other := cmp.Or(measured[m], m.elsewhere); other > 0 {
			elsewhere, ratio = m.unit.format(other), times(v/other)
		}
		rows = append(rows, []string{m.name, m.unit.format(v) + all.spread(m), cell(m, m.first, v), cell(m, m.goal, v), elsewhere, ratio})
	}
	return markdown(rows), met, bars
}

// markdown writes rows, of which the first is the head, without the columns that are
// empty below it.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		rule := ""
		for col, cell := range row {
			if !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[col] != "" }) {
				continue
			}
			if cell == "" {
				b.WriteString("| ")
			} else {
				b.WriteString("| " + cell + " ")
			}
			rule += "|--:"
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|---" + strings.TrimPrefix(rule, "|--:") + "|\n")
		}
	}
	return b.String()
}

// medians are those of several rounds of the same measures.
func medians(rounds []results) results {
	all := map[measure][]float64{}
	for _, r := range rounds {
		for m, v := range r {
			all[m] = append(all[m], v)
		}
	}
	out := results{}
	for m, values := range all {
		out[m] = median(values)
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// figures writes the results for other programs.
func (r results) figures() string {
	var b strings.Builder
	for _, m := range order {
		if v, ok := r[m]; ok {
			fmt.Fprintf(&b, "%s\t%s\t%g\n", m.name, m.unit, v)
		}
	}
	return b.String()
}

// times writes a ratio.
func times(ratio float64) string {
	if ratio >= 10 {
		return fmt.Sprintf("%.0f ×", ratio)
	}
	return fmt.Sprintf("%.2g ×", ratio)
}

// document is the whole report.
func (b *bench) document(about string) string {
	table, met, bars := b.results.table(b.elsewhere, b.samples)
	byTurns := ""
	if len(b.elsewhere) > 0 {
		byTurns = fmt.Sprintf(` What it says of
upstream's server library (test/baseline) was measured by turns with ours in this run; figures are medians of %d rounds.`, b.rounds)
	}
	return fmt.Sprintf(`# Measured

Written by `+"`make bench`"+` (test/bench). %s

Each figure stands beside its bars: what the first complete version should reach, and the goal
of the charter; in brackets, how much of the bar the figure is. *Elsewhere* is the best known of others on such a machine, or
upstream's server library on the same work; beside it, how much of that ours is. %d of %d bars are met.

%s
Starts are the median of %d. Pods are web servers of our own image, seen as running by a client that watches.
Memory is the resident set of every process of ours (server, shims, pause), summed, so shared pages count more than once.
Requests go over TLS and HTTP/2 on the loopback device, from %d connections; the client
runs on the same processors. Processor time is the server's as a whole while it answers, other work that the requests cause included.

*Outside* is a load that knows nothing of the server: %d workers on %d connections, %d pods of 7.6 KB of JSON with managedFields, each different
and written twice, %d config maps. Unless it says otherwise, a figure is the server's processor time. Of lists and streams it is the
median of %d, with the least and the most in brackets: a collection of the server's falls into one or not.%s

*Custom kind* is config maps and, by turns on the same server, objects with the same content of a kind that a definition makes, with a schema: %d of each.
A figure is the median of the server's processor time for the latter, as a multiple of that for the former.
`, about, met, bars, table, starts, clients,
		clients, outsideConns, podsLoaded, configMaps, outsideLists, byTurns, twinsMade)
}

// scaleDocument is the report of the part scale.
func (b *bench) scaleDocument(about string) string {
	table, met, bars := b.results.table(nil, nil)
	return fmt.Sprintf(`# Measured at scale

Written by `+"`make bench-scale`"+` (test/bench). %s

Each figure stands beside the bar that it is held to; in brackets, how much of the bar the figure is. %d of %d bars are met.

%s
Each is a cluster of its own on etcd, as `+"`kemudi simulate`"+` runs it: API server, scheduler and controllers are the real ones, and the
nodes, which live in the API alone and start a pod in a millisecond, are in the same process. So what they cost is in each
figure, and on a machine of few processors so is what the client costs, which asks over TLS. Of changes of endpoints and of
autoscalers the figure is what they add: the same was measured without the Service, and without the autoscalers.
`, about, met, bars, table)
}

// clusterDocument is the report of the part cluster.
func (b *bench) clusterDocument(about string) string {
	table, met, bars := b.results.table(nil, nil)
	missing := ""
	if len(b.missing) > 0 {
		missing = " **Not measured to its end: " + strings.Join(b.missing, ", ") + ".**"
	}
	return fmt.Sprintf(`# Measured with several machines

Written by `+"`make bench-cluster`"+` (test/bench). %s
Other work on the machine counts in what passed on the clock: its load (of the last minute) was %s when the measurement began, and %s when it ended.%s

Each figure stands beside the bar that it is held to; in brackets, how much of the bar the figure is. *Elsewhere* is the agent of
another distribution on such a machine. %d of %d bars are met.

%s
Agents, and servers with nodes, are machines with a network namespace and data of their own on the first server's machine, as `+"`kemudi up --servers 3 --agents %d`"+` makes them;
joining is the median of %d, other figures are the mean of as many. Their memory is that of the process; at rest there are no pods.

The other servers are control planes alone (--disable-agent) on one machine, and share its processors and its disk: three waits for one disk where
there would be three disks. Beside it stands what that disk takes for one and for three, and the same writes with memory in the place of disks, each server its own: they still
share the processors. While the third stands still (SIGSTOP), leader and follower have one each, as on machines of their own.
Writes and gets are asked of the server that joined last. Plain etcd has its own settings, no TLS, and members that are processes as well.
Who leads is the server whose controllers run, and the store's leader with it as a rule. Others run controllers when a new namespace has its account, and schedule when a pod has been looked at.

The 1,000 agents, of which there are %d here, are simulated: node agents without a machine, whose pods would start in memory. Each has its own certificate, connection,
caches and tunnel, as a real one, over TLS on the loopback device; all are in one process, which is not part of the figure. While they come to rest the short pods are run, by another
server; the figure is of a minute after that, in which some of the agents tell their status, as each does every five minutes.
`, about, b.busy, load(), missing, met, bars, table, agentsJoined, agentsJoined, b.agents)
}
