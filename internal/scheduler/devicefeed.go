package scheduler

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

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
		l.metrics.came(plugins.ResourceClaimChanged.String(), item, item.place)
	}
	l.wake(plugins.Event{Kind: plugins.ResourceClaimChanged, Claim: c, Freed: freed})
}
