package fakecri

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Program is what a container's process does. The zero value runs until it is
// told to end, and then ends at once with code 0.
type Program struct {
	// Ends says that the process ends by itself: After so long, with ExitCode.
	Ends     bool
	After    time.Duration
	ExitCode int32
	Reason   string // default: Completed or Error

	// TermAfter is how long it takes to end when told to; negative: it does not listen.
	TermAfter time.Duration
	TermCode  int32

	// StartError keeps it from being started at all.
	StartError string
}

// DefaultProgram understands a few commands, so that Jobs and failing pods can
// be written as usual: true, false, sleep N, exit N, also in sh -c with ";" or
// "&&" between them. Everything else runs until it is told to end.
func DefaultProgram(c *runtimeapi.ContainerConfig) Program {
	words := slices.Concat(c.Command, c.Args)
	if len(words) >= 3 && strings.HasSuffix(words[0], "sh") && words[1] == "-c" {
		return script(words[2])
	}
	return script(strings.Join(words, " "))
}

func script(text string) Program {
	p := Program{Ends: true}
	for _, line := range strings.FieldsFunc(strings.ReplaceAll(text, "&&", ";"), func(r rune) bool { return r == ';' || r == '\n' }) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		arg := ""
		if len(f) > 1 {
			arg = f[1]
		}
		switch f[0] {
		case "true", "echo", ":":
		case "false":
			p.ExitCode = 1
		case "sleep":
			d, ok := seconds(arg)
			if !ok {
				return Program{}
			}
			p.After += d
		case "exit":
			n, err := strconv.ParseInt(arg, 10, 32)
			if err != nil {
				return Program{}
			}
			p.ExitCode = int32(n)
			return p
		default:
			return Program{}
		}
	}
	if text == "" {
		return Program{}
	}
	return p
}

func seconds(s string) (time.Duration, bool) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsInf(n, 0) || math.IsNaN(n) {
			return 0, false
		}
		return time.Duration(n * float64(time.Second)), true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}
