package obs

import (
	"context"

	"github.com/spf13/pflag"
)

// flagsKey is the key of [WithFlags].
type flagsKey struct{}

// classifiedKey marks a flag whose value is nobody's business.
const classifiedKey = "classified"

// Classify marks a flag whose value /flagz keeps to itself.
func Classify(f *pflag.FlagSet, name string) {
	f.Lookup(name).Annotations = map[string][]string{classifiedKey: {"true"}}
}

// Told are the flags of a command with the values that they have by now, the defaults among them.
func Told(f *pflag.FlagSet) map[string]string {
	flags := map[string]string{}
	f.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if len(f.Annotations[classifiedKey]) > 0 {
			value = "CLASSIFIED"
		}
		flags[f.Name] = value
	})
	delete(flags, "help")
	return flags
}

// WithFlags returns a context that knows what the process was told. The requests of whatever is served in it
// know it from there ([Pages.Flagz]): every part of a process serves, and none of them has a use for it.
func WithFlags(ctx context.Context, flags map[string]string) context.Context {
	return context.WithValue(ctx, flagsKey{}, flags)
}
