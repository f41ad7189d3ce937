package baremetal

import (
	"sync"
	"time"
)

// answers are what the hook of power has last said of machines, and when they were told to go on. They may be used
// concurrently.
type answers struct {
	mu struct {
		sync.Mutex
		of map[string]*answer
	}
}

type answer struct {
	is    string
	at    time.Time // when it was said; zero: somebody has had it
	awoke time.Time // when the machine was told to go on
}

const (
	// justNow is how long an answer is good for another question: who asks whether a machine exists asks
	// next whether it is off, and a hook may take seconds.
	justNow = time.Second
	// awakes is how long a machine may say that it is off when it was told to go on.
	awakes = time.Minute
)

// answerLocked is that of a machine.
func (a *answers) answerLocked(machine string) *answer {
	if a.mu.of == nil {
		a.mu.of = map[string]*answer{}
	}
	if a.mu.of[machine] == nil {
		a.mu.of[machine] = &answer{}
	}
	return a.mu.of[machine]
}

func (a *answers) keep(machine, is string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	said := a.answerLocked(machine)
	said.is, said.at = is, time.Now()
}

// take returns what was said just now, once.
func (a *answers) take(machine string) (is string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	said := a.answerLocked(machine)
	ok = time.Since(said.at) < justNow
	said.at = time.Time{}
	return said.is, ok
}

// last returns what was said last, however long ago.
func (a *answers) last(machine string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answerLocked(machine).is
}

// wake notes that a machine was told to go on, or off again.
func (a *answers) wake(machine string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answerLocked(machine).awoke = at
}

// awake says that a machine is on its way, whatever it says.
func (a *answers) awake(machine string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.answerLocked(machine).awoke) < awakes
}
