package metricsserver

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
)

// Use is what something has used of processors until a time, in seconds, and uses of
// memory then, in bytes.
type Use struct {
	CPU, Memory float64
	At          time.Time
}

// Sample is one look at a node.
type Sample struct {
	Node Use // At is zero: it is not known
	// Pods have what each container uses, by the pod's key and the container's name.
	Pods map[string]map[string]Use
}

// Add notes what a container of a pod uses.
func (s *Sample) Add(namespace, pod, container string, u Use) {
	key := cache.Key(namespace, pod)
	if s.Pods == nil {
		s.Pods = map[string]map[string]Use{}
	}
	if s.Pods[key] == nil {
		s.Pods[key] = map[string]Use{}
	}
	s.Pods[key][container] = u
}

// parse reads the metrics that node agents serve for metrics servers. Of others that
// stand among them it takes no notice.
func parse(r io.Reader) (*Sample, error) {
	s, now := &Sample{}, time.Now()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		m, err := parseLine(line, now)
		if err != nil {
			return nil, err
		}
		s.take(m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return s, nil
}

// metric is one line of the text form.
type metric struct {
	name   string
	labels map[string]string
	value  float64
	at     time.Time
}

func (s *Sample) take(m metric) {
	switch m.name {
	case "node_cpu_usage_seconds_total":
		s.Node.CPU, s.Node.At = m.value, m.at
	case "node_memory_working_set_bytes":
		s.Node.Memory = m.value
	case "container_cpu_usage_seconds_total", "container_memory_working_set_bytes":
		u := s.Pods[cache.Key(m.labels["namespace"], m.labels["pod"])][m.labels["container"]]
		if m.name == "container_memory_working_set_bytes" {
			u.Memory = m.value
		} else {
			u.CPU, u.At = m.value, m.at
		}
		s.Add(m.labels["namespace"], m.labels["pod"], m.labels["container"], u)
	}
}

// parseLine reads name{label="value",...} value [milliseconds].
func parseLine(line string, now time.Time) (metric, error) {
	m := metric{at: now}
	bad := fmt.Errorf("not a metric: %q", line)
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return m, bad
	}
	m.name, line = line[:end], line[end:]
	if line[0] == '{' {
		var ok bool
		if m.labels, line, ok = parseLabels(line[1:]); !ok {
			return m, bad
		}
	}
	words := strings.Fields(line)
	if len(words) == 0 || len(words) > 2 {
		return m, bad
	}
	var err error
	if m.value, err = strconv.ParseFloat(words[0], 64); err != nil {
		return m, bad
	}
	if len(words) == 2 {
		ms, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return m, bad
		}
		m.at = time.UnixMilli(ms)
	}
	return m, nil
}

// parseLabels reads labels up to their closing brace, and returns what follows.
func parseLabels(text string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", ")
		if rest, ok := strings.CutPrefix(text, "}"); ok {
			return labels, rest, true
		}
		name, quoted, found := strings.Cut(text, "=")
		if !found {
			return nil, "", false
		}
		value, err := strconv.QuotedPrefix(quoted)
		if err != nil {
			return nil, "", false
		}
		text = quoted[len(value):]
		if labels[name], err = strconv.Unquote(value); err != nil {
			return nil, "", false
		}
	}
}
