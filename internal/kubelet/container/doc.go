// Package container makes and ends the sandboxes and containers of pods: their
// configuration, what they mount, their hooks, their images, and other limits while
// they run. Start at [Runner.RunSandbox] and [Container.Start].
//
// Each call does one thing, and says what came of it. When it is done, whether it is
// done again, and what users are shown of it, is for who owns the pod to say.
package container
