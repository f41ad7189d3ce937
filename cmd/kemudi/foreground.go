package main

import (
	"log/slog"
	"os"

	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/up"
)

// foreground is what a command that runs until it is told to end begins with: its log, that
// of the libraries too, and what tells whoever has started it how far it is.
func foreground(o obs.LogOptions) (*slog.Logger, func(step string, ready bool), error) {
	log, err := obs.NewLogger(os.Stderr, o)
	if err != nil {
		return nil, nil, errUsage{err}
	}
	obs.CaptureKlog(log)
	obs.CaptureStandard(log)
	n, err := up.NewNotifier()
	if err != nil {
		return nil, nil, err
	}
	return log, func(step string, ready bool) {
		log.Info("started", "step", step)
		n.Done(step, ready)
	}, nil
}
