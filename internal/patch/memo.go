package patch

import "sync"

// setMemo remembers what became of managers' sets: objects that one template
// made go through the same changes, so nearly all answers are known.
type setMemo struct {
	mu struct {
		sync.Mutex
		// Two generations: when the younger is full, the older is forgotten.
		young, old map[setQuestion][]byte
	}
}

// setQuestion is what a set's fate depends on.
type setQuestion struct {
	before string
	change change
	own    bool
}

// memoSize is how many answers one generation holds.
const memoSize = 512

// after returns the set of a manager after a change; see afterSet. Answers are
// shared and read-only; empty: nothing is left.
func (m *setMemo) after(before []byte, ch change, own bool) ([]byte, error) {
	if ch.none() {
		return before, nil
	}
	q := setQuestion{string(before), ch, own}
	if answer, ok := m.known(q); ok {
		return answer, nil
	}
	answer, err := afterSet(before, ch, own)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.young == nil || len(m.mu.young) >= memoSize {
		m.mu.young, m.mu.old = make(map[setQuestion][]byte, memoSize), m.mu.young
	}
	m.mu.young[q] = answer
	return answer, nil
}

func (m *setMemo) known(q setQuestion) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if answer, ok := m.mu.young[q]; ok {
		return answer, true
	}
	answer, ok := m.mu.old[q]
	if ok && len(m.mu.young) < memoSize {
		m.mu.young[q] = answer
	}
	return answer, ok
}
