package csi

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/kemudi/kemudi/internal/obs"
)

// metrics say how long drivers take, under upstream's names.
type metrics struct{ operations, whole, calls *prometheus.HistogramVec }

// newMetrics registers them; nil: nobody asks for them.
func newMetrics(reg prometheus.Registerer) *metrics {
	buckets := obs.VolumeSeconds()
	m := &metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "Storage operation duration: until a driver has done something about a volume, or has failed to", Buckets: buckets,
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		whole: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "Storage operation end to end duration in seconds: from when a pod wants a volume until it has it", Buckets: buckets,
		}, []string{"plugin_name", "operation_name"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_operations_seconds", Help: "Container Storage Interface operation duration with gRPC error code status total", Buckets: buckets,
		}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"}),
	}
	if reg != nil {
		reg.MustRegister(m.operations, m.whole, m.calls)
	}
	return m
}

// operation is something that is done about a volume, in the words of the metric: of one with a file system, and of a device.
type operation struct{ mount, device string }

var (
	setsUp    = operation{"volume_mount", "map_volume"}
	tearsDown = operation{"volume_unmount", "unmap_volume"}
	unstages  = operation{"unmount_device", "unmap_device"}
	expands   = operation{"volume_fs_resize", "volume_fs_resize"}
)

// name is what it is called of a volume.
func (o operation) name(device bool) string {
	if device {
		return o.device
	}
	return o.mount
}

// pluginOf is upstream's name of what sees to the volumes of a driver.
func pluginOf(driver string) string { return "kubernetes.io/csi:" + driver }

// did counts what was done about a volume of a driver.
func (m *metrics) did(driver, operation string, began time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.operations.WithLabelValues(pluginOf(driver), operation, status, "false").Observe(time.Since(began).Seconds())
}

// has counts a volume that a pod has at last.
func (m *metrics) has(driver string, since time.Time) {
	m.whole.WithLabelValues(pluginOf(driver), "overall_volume_mount").Observe(time.Since(since).Seconds())
}

// called counts the calls of a driver.
func (m *metrics) called(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, in, out, conn, opts...)
		m.calls.WithLabelValues(driver, method, status.Code(err).String(), "false").Observe(time.Since(began).Seconds())
		return err
	}
}
