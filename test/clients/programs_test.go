package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// programsDir names the folder with the programs of test/programs, which make programs builds.
const programsDir = "KEMUDI_PROGRAMS"

// TestProgramsThatOthersWroteWorkUnmodified runs the transcripts of testdata/programs, whose commands are
// those programs. One that needs more than there is on every machine says, by "# Needs: command", how that is seen.
func TestProgramsThatOthersWroteWorkUnmodified(t *testing.T) {
	dir := os.Getenv(programsDir)
	if dir == "" {
		t.Skip(programsDir + ": not told; make programs builds them, which takes minutes")
	}
	t.Setenv("PROGRAMS", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	files, err := filepath.Glob("testdata/programs/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if m := lacking.FindSubmatch(data); m != nil && exec.CommandContext(t.Context(), "sh", "-c", string(m[1])).Run() != nil {
				t.Skipf("%s needs what this machine lacks: %s", file, m[1])
			}
			runTranscript(t, file)
		})
	}
}

var lacking = regexp.MustCompile(`(?m)^# Needs: (.*)$`)
