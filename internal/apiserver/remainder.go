package apiserver

// remainder is what is left of a request when its filters have returned: nothing, unless its
// answer is sent by somebody else, as that of a watch is by its connection. Then the goroutine
// of the request only waits for the end, and need not keep the stack by which it got there:
// filters leave to the remainder what they would have done on their way back.
//
// It belongs to the request's goroutine.
type remainder struct {
	goesOn <-chan struct{} // closed when the answer has ended; nil: it has
	ends   []func()        // what is done then, in this order
}

// goOn says that the answer goes on until a channel is closed, and what is done first then.
func (m *remainder) goOn(until <-chan struct{}, end func()) {
	m.goesOn, m.ends = until, append(m.ends, end)
}

// after does what is to be done when the answer has ended, at once if it has. Filters defer it.
func (m *remainder) after(end func()) {
	if m.goesOn == nil {
		end()
		return
	}
	m.ends = append(m.ends, end)
}

// wait returns when the answer has ended and all is done that was left for then.
func (m *remainder) wait() {
	if m.goesOn != nil {
		<-m.goesOn
		m.finish()
	}
}

//go:noinline
func (m *remainder) finish() {
	for i := len(m.ends) - 1; i >= 0; i-- {
		defer m.ends[i]() // the last deferred is the first: one that panics does not keep the others
	}
}
