package devices

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"

	celdevice "github.com/kemudi/kemudi/internal/cel/device"
)

// Expressions reads expressions about devices, as long as ctx lasts.
func Expressions(ctx context.Context) Compiler {
	return func(text string) (Matcher, error) {
		selector, err := celdevice.Compile(text)
		if err != nil {
			return nil, err
		}
		return func(driver string, d *resourcev1.Device) (bool, error) {
			in, err := celdevice.NewInput(driver, d)
			if err != nil {
				return false, err
			}
			return selector.Matches(ctx, in)
		}, nil
	}
}
