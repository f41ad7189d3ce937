package stuck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/test/wait"
)

// standsEnv makes this program a process that stands still.
const standsEnv = "KEMUDI_TEST_STANDS_STILL"

func TestChildStandsStill(t *testing.T) {
	if os.Getenv(standsEnv) == "" {
		t.Skip("only as the child of another test")
	}
	fmt.Fprintln(os.Stderr, "about to stand still")
	standStill()
}

// standStill is what the child is found at.
func standStill() { <-time.After(time.Hour) }

// listener hears what is logged.
type listener struct {
	testing.TB
	said strings.Builder
}

func (l *listener) Logf(format string, args ...any) { fmt.Fprintf(&l.said, format+"\n", args...) }

func TestProcessTellsWhatItDoes(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildStandsStill$")
	cmd.Env, cmd.Stderr = append(os.Environ(), standsEnv+"=1", "KEMUDI_TRACE_DIR="), log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	Guard(t, cmd, log.Name()) // there is time left
	wait.Until(t, func() error {
		text, err := os.ReadFile(log.Name())
		if err == nil && len(text) == 0 {
			err = fmt.Errorf("it has said nothing")
		}
		return err
	})
	first := &listener{TB: t}
	Explain(first, cmd, log.Name())
	for _, want := range []string{"the end of its log:\nabout to stand still\n", "what it does:\nSIGQUIT: quit\n", "stuck.standStill("} {
		if !strings.Contains(first.said.String(), want) {
			t.Errorf("got\n%s\nwant it to contain %q", first.said.String(), want)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it has ended by itself")
	}
	again := &listener{TB: t}
	Explain(again, cmd, log.Name())
	if got := again.said.String(); strings.Contains(got, "what it does") || !strings.Contains(got, "the end of its log") {
		t.Errorf("of a process that has ended: got\n%s", got)
	}
}
