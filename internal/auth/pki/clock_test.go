package pki

import (
	"testing"
	"time"
)

// A clock that runs in local time is set back by hours once the network is there.
func TestCertificatesAreGoodOnAClockThatIsSetBackByHours(t *testing.T) {
	a, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Issue(Subject{Name: "server", Server: true})
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-14 * time.Hour)
	if a.Cert.NotBefore.After(then) || leaf.Cert.NotBefore.After(then) {
		t.Errorf("good from %s and %s, want from %s", a.Cert.NotBefore, leaf.Cert.NotBefore, then)
	}
	brief, err := a.Issue(Subject{Name: "server", Server: true, Life: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Since(brief.Cert.NotBefore); got > 20*time.Minute {
		t.Errorf("one for two hours: good from %s ago, which has it renewed too early", got)
	}
}
