package scheduler

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/cel/device"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// Expressions reads expressions about devices, as long as ctx lasts.
func Expressions(ctx context.Context) devices.Compiler {
	return func(text string) (devices.Matcher, error) {
		selector, err := device.Compile(text)
		if err != nil {
			return nil, err
		}
		return func(driver string, d *resourcev1.Device) (bool, error) {
			in, err := device.NewInput(driver, d)
			if err != nil {
				return false, err
			}
			return selector.Matches(ctx, in)
		}, nil
	}
}

func (l *loop) takeDeviceClass(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.RemoveDeviceClass(obj.GetName())
	} else {
		l.snapshot.SetDeviceClass(obj.(*resourcev1.DeviceClass))
	}
	l.wake(plugins.Event{Kind: plugins.DeviceClassChanged})
}

func (l *loop) takeDeviceRule(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.Devices().RemoveRule(obj.GetName())
	} else {
		l.snapshot.Devices().SetRule(obj.(*resourcev1.DeviceTaintRule))
	}
	l.wake(plugins.Event{Kind: plugins.DevicesChanged})
}

func (l *loop) takeSlice(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.Devices().RemoveSlice(obj.GetName())
	} else {
		l.snapshot.Devices().SetSlice(obj.(*resourcev1.ResourceSlice))
	}
	l.wake(plugins.Event{Kind: plugins.DevicesChanged})
}

func (l *loop) takeResourceClaim(obj resource.Object, gone bool) {
	c := obj.(*resourcev1.ResourceClaim)
	var freed bool
	if gone {
		freed = l.snapshot.RemoveResourceClaim(c.Namespace, c.Name)
	} else {
		freed = l.snapshot.SetResourceClaim(c)
	}
	for _, item := range l.queue.reenter(c.Namespace+"/"+c.Name, time.Now()) {
		l.groups.touch(item.pod.Obj)
		l.metrics.incoming.WithLabelValues("ResourceClaimUpdate", string(item.place)).Inc()
	}
	l.wake(plugins.Event{Kind: plugins.ResourceClaimChanged, Claim: c, Freed: freed})
}
