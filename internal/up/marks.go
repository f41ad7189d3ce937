package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// EphemeralMark is the file by which a server says that its cluster is gone when it ends.
func EphemeralMark(dataDir string) string { return filepath.Join(dataDir, "ephemeral") }

// Ephemeral says whether the cluster of a data directory is gone when its server ends, or was
// when it crashed.
func Ephemeral(dataDir string) bool {
	_, err := os.Stat(EphemeralMark(dataDir))
	return err == nil
}

// ForgetPatience is how long a server may take, beside what stopping takes, to remove what its cluster
// had that is gone.
const ForgetPatience = 2 * time.Minute

// TakeoverMark is the file of a store that says from where it was taken over.
const TakeoverMark = "taken-over"

// TakenFrom is where the store of a data directory was taken over from; empty: it was not.
func TakenFrom(dataDir string) string {
	from, err := os.ReadFile(filepath.Join(dataDir, "etcd", TakeoverMark))
	if err != nil {
		return "" // a start says what is wrong there
	}
	return strings.TrimSpace(string(from))
}

// MemberFile is the file of a data directory in which a server keeps its place among several.
const MemberFile = "member.json"

// Removed says whether the others have taken the server of a data directory out of their cluster, as far
// as it has heard of that.
func Removed(dataDir string) bool {
	data, err := os.ReadFile(filepath.Join(dataDir, MemberFile))
	if err != nil {
		return false // a start says what is wrong there
	}
	var place struct {
		Removed bool `json:"removed"`
	}
	return json.Unmarshal(data, &place) == nil && place.Removed
}

// waitsFile is where a server that is not ready keeps what it waits for.
func waitsFile(runDir string) string { return filepath.Join(runDir, "waits") }

// SetWaits notes what a server waits for before it is ready, and what can be done about it, for whoever
// looks from outside; empty: for nothing that takes time.
func SetWaits(runDir, what string) error {
	if what == "" {
		if err := os.Remove(waitsFile(runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("note that this server waits for nothing: %w", err)
		}
		return nil
	}
	if err := os.WriteFile(waitsFile(runDir), []byte(what+"\n"), 0o600); err != nil {
		return fmt.Errorf("note what this server waits for: %w", err)
	}
	return nil
}

// waits is what the server that runs waits for; empty: nobody knows.
func waits(runDir string) string {
	data, err := os.ReadFile(waitsFile(runDir))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// late is the error of a start that is not ready in time, with what it waits for.
func late(ctx context.Context, runDir string) error {
	err := context.Cause(ctx)
	if what := waits(runDir); what != "" {
		err = fmt.Errorf("%w: %s", err, what)
	}
	return err
}
