package encoded

import "sync"

// learner makes the dictionaries of one form: of objects that could not be
// packed well with the ones before.
type learner struct {
	mu struct {
		sync.Mutex
		now           *dictionary // nil: there is none yet
		packed, badly int         // since the dictionary was made
	}
}

// A dictionary that is full is replaced when more than half of a number of
// objects are packed badly: then what is stored has become something else.
const relearnAfter = 2048

// dictionary returns the present one, nil if there is none.
func (l *learner) dictionary() *dictionary {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.now
}

// packed tells how well an object was packed, so that the next ones are packed
// better.
func (l *learner) packed(text []byte, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.packed++
	if 3*size <= len(text) || len(text) > maxText/4 {
		return
	}
	l.mu.badly++
	var old []byte
	if l.mu.now != nil {
		old = l.mu.now.text
	}
	if len(old)+len(text) > maxText {
		if l.mu.packed < relearnAfter {
			return
		}
		worse := 2*l.mu.badly > l.mu.packed
		l.mu.packed, l.mu.badly = 0, 0
		if !worse {
			return
		}
		old = old[len(old)/2:]
	}
	l.mu.now = newDictionary(append(append(make([]byte, 0, len(old)+len(text)), old...), text...)) // E1
}
