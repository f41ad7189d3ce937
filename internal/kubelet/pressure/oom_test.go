package pressure

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// lines is a log of which each read is one line.
type lines []string

func (l *lines) Read(p []byte) (int, error) {
	if len(*l) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*l)[0])
	*l = (*l)[1:]
	return n, nil
}

func TestPeopleAreToldWhoIsKilledForWantOfMemory(t *testing.T) {
	t.Parallel()
	var told []string
	o := &OutOfMemory{Event: func(kind, reason, message string) {
		told = append(told, strings.Join([]string{kind, reason, message}, " "))
	}}
	err := o.follow(&lines{
		"6,1,100,-;eth0: link up\n",
		"3,2,200,-;Memory cgroup out of memory: Killed process 7 (own fault) total-vm:1kB\n",
		"3,3,300,-;Out of memory: Killed process 4242 (java (main)) total-vm:12345kB, anon-rss:1kB\n SUBSYSTEM=x\n",
		"3,4,400,-;Out of memory: Kill process 11 (old) score 900 or sacrifice child\n",
	})
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("got %v, want that it could read no more", err)
	}
	if want := []string{
		"Warning SystemOOM System OOM encountered, victim process: java (main), pid: 4242", "Warning SystemOOM System OOM encountered, victim process: old, pid: 11",
	}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}
