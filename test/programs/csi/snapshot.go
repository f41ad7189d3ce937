package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (d *driver) CreateSnapshot(_ context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := "id-of-" + req.GetName()
	if d.mu.snapshots[id] == nil {
		v, err := d.findLocked(req.GetSourceVolumeId())
		if err != nil {
			return nil, err
		}
		d.mu.snapshots[id] = &csi.Snapshot{
			SnapshotId: id, SourceVolumeId: req.GetSourceVolumeId(), SizeBytes: v.size, CreationTime: timestamppb.Now(), ReadyToUse: true,
		}
	}
	return &csi.CreateSnapshotResponse{Snapshot: d.mu.snapshots[id]}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.snapshots, req.GetSnapshotId())
	return &csi.DeleteSnapshotResponse{}, nil
}

// ControllerModifyVolume takes whatever a class says but that a volume is to be impossible.
func (d *driver) ControllerModifyVolume(_ context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.findLocked(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetMutableParameters()["impossible"] != "" {
		return nil, status.Error(codes.InvalidArgument, "no volume is impossible")
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
