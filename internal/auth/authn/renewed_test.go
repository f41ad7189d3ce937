package authn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/auth/pki"
)

func TestChainIsMadeAnewWhenItsFilesBecomeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, err := pki.NewAuthority("first")
		if err != nil {
			t.Fatal(err)
		}
		second, err := pki.NewAuthority("second")
		if err != nil {
			t.Fatal(err)
		}
		old := issue(t, first, pki.Subject{Name: "alice", Client: true})
		young := issue(t, second, pki.Subject{Name: "alice", Client: true})
		made, pool := 0, first.Pool()
		a := NewRenewed(func() any { return pool }, func() Options {
			made++
			return Options{ClientCA: pool}
		})
		for range 3 {
			if got := who(a, request(t, "", old)); got != "alice [system:authenticated]" || made != 1 {
				t.Errorf("got %s by chain %d", got, made)
			}
			time.Sleep(time.Minute)
		}
		pool = second.Pool()
		if got := who(a, request(t, "", young)); got != "alice [system:authenticated]" || made != 2 {
			t.Errorf("got %s by chain %d, want the new authority believed", got, made)
		}
		if got := who(a, request(t, "", old)); got == "alice [system:authenticated]" {
			t.Error("the old authority is believed, though its certificate was known")
		}
	})
}
