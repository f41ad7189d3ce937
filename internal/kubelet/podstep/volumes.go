package podstep

// volumes has the pod's volumes made, kept up to date, and measured.
func (s *step) volumes() {
	if !s.o.Volumes.Ready {
		s.do(Action{Op: PrepareVolumes})
		return
	}
	s.refreshVolumes()
	s.measureStorage()
}

// refreshVolumes has volumes written anew when what they are written from has
// changed, however the last time went, or when it is time: that of a token, or of
// another try.
func (s *step) refreshVolumes() {
	a := Action{Op: RefreshVolumes}
	due := s.o.Volumes.RenewAt
	if retry := s.retry(a); due.IsZero() || !retry.IsZero() && retry.Before(due) {
		due = retry
	}
	switch {
	case s.doing(a):
	case s.o.Volumes.Stale || !due.IsZero() && !s.now.Before(due):
		s.ask(a)
	case !due.IsZero():
		s.wakeAt(due)
	}
}

// measureStorage has what the pod holds on disk measured when it is time, if that
// is limited: the kernel does not tell of it.
func (s *step) measureStorage() {
	m, a := &s.o.Storage, Action{Op: MeasureStorage}
	if !m.Limited || s.doing(a) {
		return
	}
	if due := m.Since.Add(m.Every); s.now.Before(due) {
		s.wakeAt(due)
		return
	}
	s.do(a)
}
