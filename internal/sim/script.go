package sim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/controllers/loadbalancer"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Test runs every script that the pattern matches as a subtest of its own, each
// in a bubble of virtual time with a cluster of its own.
//
// A script is a text archive: commands (see verbs.go), one a line, then files
// between lines "-- name --". "# Proves: RS-006, C-041" in it names requirements
// that the next command shows, which must be one that expects something (stdout, wait,
// wait-count, or any with !); other lines that begin with # are comments. "! " before
// a command says that it must fail. Before each command, what those before it have set
// off at this moment comes about: an object that is there for no time is not seen. "# Serves:
// scheduling.k8s.io/v1beta1" turns on what is off by default, as --runtime-config does; "# Cloud:
// machines.yaml" gives the cluster a loopback cloud, which begins as that file; "# Balancers: nodes" is
// --load-balancer.
func Test(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script matches %s (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			Script(t, file, string(data))
		})
	}
}

// Script runs one script. The name is that of its file, or of the test that has written it.
func Script(t *testing.T, name, text string) {
	t.Helper()
	archive := txtar.Parse([]byte(text))
	lines := strings.Split(string(archive.Comment), "\n")
	cites := trace.NewScript(t, name)
	defer cites.End()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		if os.Getenv("KEMUDI_SIM_LOG") != "" {
			log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		on, machines, balancers, gateways := map[string]bool{}, "", loadbalancer.Options{}, false
		for _, line := range lines {
			if name, ok := strings.CutPrefix(line, "# Serves: "); ok {
				on[name] = true
			}
			if name, ok := strings.CutPrefix(line, "# Cloud: "); ok {
				machines = name
			}
			if from, ok := strings.CutPrefix(line, "# Balancers: "); ok {
				balancers.From = strings.Split(from, ",")
			}
			gateways = gateways || line == "# Gateways"
		}
		files := map[string][]byte{}
		for _, f := range archive.Files {
			files[f.Name] = f.Data
		}
		cloud, err := newCloud(t, files[machines])
		if err != nil {
			t.Fatal(err)
		}
		c, err := Start(t.Context(), Options{Logger: log, Cloud: string(cloud), LoadBalancer: balancers, Gateways: gateways, Serving: func(o *apiserver.Options, caches *watchcache.Set) error {
			o.RuntimeConfig = on
			return asAdmin(o, caches)
		}})
		if err != nil {
			t.Fatal(err)
		}
		r := &run{c: c, files: files, cloud: cloud, saved: map[string]string{}}
		for i, line := range lines {
			if ids, ok := strings.CutPrefix(line, "# Proves:"); ok {
				cites.Cites(i+1, ids)
				continue
			}
			done, err := r.line(t.Context(), line)
			if err != nil {
				t.Errorf("%s:%d: %s\n%v", filepath.Base(name), i+1, line, err)
				break
			}
			if done {
				cites.Passed()
			}
		}
		r.untrack()
		if !t.Failed() {
			// What the script has done must come to an end, whatever it was.
			if busy, err := c.Restless(t.Context()); err != nil || len(busy) > 0 {
				t.Errorf("%s: not at rest in the end: %q, %v", filepath.Base(name), busy, err)
			}
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
}

// run is the state of a script.
type run struct {
	c      *Cluster
	files  map[string][]byte
	cloud  cloudFile
	stdout string

	saved   map[string]string // what ${name} in a command stands for
	tracker *tracker          // nil: nobody tracks
}

// abrupt commands may come in the middle of what those before them have set off. All
// others find a cluster that has done what it does at once, so that two commands in a
// row mean the same every time.
var abrupt = []string{"restart", "kill-plane"}

// line executes one line. done says that it held a command.
func (r *run) line(ctx context.Context, line string) (done bool, err error) {
	words, err := split(line)
	if err != nil || len(words) == 0 {
		return false, err
	}
	for i := range words {
		for name, value := range r.saved {
			words[i] = strings.ReplaceAll(words[i], "${"+name+"}", value)
		}
	}
	negated := words[0] == "!"
	if negated {
		words = words[1:]
	}
	verb := verbs[words[0]]
	if verb == nil {
		return false, fmt.Errorf("there is no command %q", words[0])
	}
	if !slices.Contains(abrupt, words[0]) {
		synctest.Wait()
	}
	err = verb(ctx, r, words[1:])
	switch {
	case negated && err == nil:
		return false, fmt.Errorf("it should have failed; printed:\n%s", r.stdout)
	case negated:
		r.stdout = err.Error()
		return true, nil
	}
	return err == nil, err
}

// split takes a line apart at spaces; single quotes keep a word together.
func split(line string) ([]string, error) {
	var words []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' {
			return words, nil
		}
		var word strings.Builder
		for line != "" && line[0] != ' ' && line[0] != '\t' {
			if line[0] != '\'' {
				word.WriteByte(line[0])
				line = line[1:]
				continue
			}
			quoted, rest, ok := strings.Cut(line[1:], "'")
			if !ok {
				return nil, fmt.Errorf("a quote is not closed: %s", line)
			}
			word.WriteString(quoted)
			line = rest
		}
		words = append(words, word.String())
	}
}
