package edge

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/edge/passwd"
)

const (
	// checks is how many passwords are looked at at the same time: each may take a processor for a
	// tenth of a second.
	checks = 2
	// checkPatience is how long a request waits for that.
	checkPatience = 5 * time.Second
	// mostKnown is how many passwords are remembered that were right.
	mostKnown = 4096
)

// known are passwords that were right, so that a client which sends one with each request costs
// its hash once. No password can be read from it: it has sums with a key that ends with the process.
type known struct {
	key   []byte
	turns chan struct{}

	mu struct {
		sync.Mutex
		right map[[sha256.Size]byte]struct{}
	}
}

func newKnown() *known {
	k := &known{key: make([]byte, sha256.Size), turns: make(chan struct{}, checks)}
	_, _ = rand.Read(k.key) // it never fails
	k.mu.right = map[[sha256.Size]byte]struct{}{}
	return k
}

// match says whether a password is the one of a hash; err: nobody had the time to look.
func (k *known) match(ctx context.Context, hash, password string) (bool, error) {
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte(hash + "\x00" + password))
	sum := [sha256.Size]byte(mac.Sum(nil))
	k.mu.Lock()
	_, right := k.mu.right[sum]
	k.mu.Unlock()
	if right {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	select {
	case k.turns <- struct{}{}:
		defer func() { <-k.turns }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if !passwd.Match(hash, password) {
		return false, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.right) >= mostKnown {
		clear(k.mu.right)
	}
	k.mu.right[sum] = struct{}{}
	return true, nil
}

// loggedIn says whether a client has the name and the password that a site asks for; if not, it has
// been answered.
func (x *exchange) loggedIn(a *answer, r *http.Request) bool {
	l := x.o.Login
	if l == nil {
		return true
	}
	name, password, said := r.BasicAuth()
	if said {
		hash, there := l.Users[name]
		if !there { // which takes as long, so that nobody learns who there is
			for _, hash = range l.Users {
				break
			}
		}
		right, err := x.e.known.match(r.Context(), hash, password)
		if err != nil {
			x.e.refuse(a, "busy", http.StatusServiceUnavailable)
			return false
		}
		if right && there {
			return true
		}
	}
	a.Header().Set("WWW-Authenticate", "Basic realm="+strconv.Quote(l.Realm)+`, charset="UTF-8"`)
	x.e.refuse(a, "login", http.StatusUnauthorized)
	return false
}
