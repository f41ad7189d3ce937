package csi

import (
	"context"
	"fmt"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Expand has the driver fill, on the node, a size that a volume has now, which is set up.
func (s *Volumes) Expand(ctx context.Context, r *Request, size resource.Quantity) error {
	began := time.Now()
	err := s.expand(ctx, r, size)
	s.o.Drivers.metrics.did(r.Driver(), expands.name(r.Device()), began, err)
	return err
}

func (s *Volumes) expand(ctx context.Context, r *Request, size resource.Quantity) error {
	s.mu.Lock()
	v := s.volumeLocked(s.home(r), s.record(r))
	s.mu.Unlock()
	leave, err := v.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c, err := s.o.Drivers.find(r.Driver())
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: Expander.NodeExpand failed to create newCsiDriverClient: %w", err)
	}
	can, err := c.abilities(ctx)
	if err != nil {
		return err
	}
	if !can.expand() {
		return fmt.Errorf("NodeExpand is not supported by the CSI driver %s", r.Driver())
	}
	secrets, err := r.secrets(r.PV.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return fmt.Errorf("fetching NodeExpandSecretRef %w", err)
	}
	in := &csipb.NodeExpandVolumeRequest{
		VolumeId: r.Handle(), VolumePath: s.at.told(s.Path(r)), CapacityRange: &csipb.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: r.capability(can), Secrets: secrets,
	}
	if can.stage() {
		in.StagingTargetPath = s.at.told(s.at.staging(v.dir))
	}
	_, err = call(ctx, c, csipb.NodeClient.NodeExpandVolume, in)
	switch {
	case err == nil:
		return nil
	case Infeasible(err):
		return fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err)
	}
	return fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
}

// Infeasible reports whether an error of Expand says that it will never work.
func Infeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}

// InUse reports whether an error of Expand says that the volume cannot grow while pods have it.
func InUse(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// Recheck has a volume that is published at a path seen to again, since something about it has changed.
func (s *Volumes) Recheck(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.mu.published[path]; ok {
		p.stale = true
		s.mu.published[path] = p
	}
	s.mu.changed[path] = true
}
