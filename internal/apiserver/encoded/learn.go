package encoded

import "sync"

// learner makes the dictionaries of one form: of objects that could not be
// packed well with the ones before.
type learner struct {
	mu struct {
		sync.Mutex
		now           *dictionary // nil: there is none yet
		packed, badly int         // since it was last asked whether a full one fits
		next          int         // an object is learned at this number of packed ones, if it is packed less than well
	}
}

// A dictionary that is full is replaced when more than half of a number of
// objects are packed badly: then what is stored has become something else.
const relearnAfter = 2048

// What is packed to less than a badTimes-th part is learned, as long as there is
// room; so is now and then what is packed to less than a wellTimes-th.
const (
	badTimes  = 3
	wellTimes = 12
)

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
	switch {
	case len(text) > maxText/4:
		return
	case badTimes*size > len(text):
		l.mu.badly++
	case wellTimes*size > len(text) && l.mu.packed >= l.mu.next && len(l.mu.now.text)+len(text) <= maxText:
		// Others like it will come, but a dictionary for each would take more than it saves.
		l.mu.next = 2 * l.mu.packed
	default:
		return
	}
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
