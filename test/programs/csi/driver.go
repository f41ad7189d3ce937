package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// What the driver is called, and how many bytes a volume may have.
const (
	name    = "disks.example.com"
	largest = 10 << 30
)

// driver is the volumes that there are, and the snapshots of them.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	mu struct {
		sync.Mutex
		volumes   map[string]*volume       // by ID
		snapshots map[string]*csi.Snapshot // by ID
	}
}

// volume is one of them. It is on one node at a time.
type volume struct {
	size   int64
	places []*csi.Topology
	node   string // empty: it is attached to none
}

func newDriver() *driver {
	d := &driver{}
	d.mu.volumes, d.mu.snapshots = map[string]*volume{}, map[string]*csi.Snapshot{}
	return d
}

func (*driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (*driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (*driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	resp := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
	}}}}
	for _, c := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: c}}})
	}
	return resp, nil
}

func (*driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}}})
	}
	return resp, nil
}

func (*driver) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return &csi.GetCapacityResponse{AvailableCapacity: largest, MaximumVolumeSize: wrapperspb.Int64(largest)}, nil
}

func (d *driver) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := req.GetCapacityRange().GetRequiredBytes()
	if size > largest {
		return nil, status.Errorf(codes.OutOfRange, "no volume has %d bytes", size)
	}
	if err := d.sourceLocked(req.GetVolumeContentSource()); err != nil {
		return nil, err
	}
	id := "id-of-" + req.GetName()
	v := d.mu.volumes[id]
	if v == nil {
		v = &volume{size: size}
		if wanted := req.GetAccessibilityRequirements().GetPreferred(); len(wanted) > 0 {
			v.places = wanted[:1]
		}
		d.mu.volumes[id] = v
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: id, CapacityBytes: v.size, AccessibleTopology: v.places, ContentSource: req.GetVolumeContentSource(),
	}}, nil
}

// sourceLocked refuses what is not there to make a volume of.
func (d *driver) sourceLocked(from *csi.VolumeContentSource) error {
	if id := from.GetSnapshot().GetSnapshotId(); id != "" && d.mu.snapshots[id] == nil {
		return status.Errorf(codes.NotFound, "there is no snapshot %s", id)
	}
	if id := from.GetVolume().GetVolumeId(); id != "" {
		_, err := d.findLocked(id)
		return err
	}
	return nil
}

func (d *driver) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.mu.volumes[req.GetVolumeId()]; v != nil && v.node != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", req.GetVolumeId(), v.node)
	}
	delete(d.mu.volumes, req.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.findLocked(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.node != "" && v.node != req.GetNodeId() {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", req.GetVolumeId(), v.node)
	}
	v.node = req.GetNodeId()
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "/dev/" + req.GetVolumeId()}}, nil
}

func (d *driver) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.mu.volumes[req.GetVolumeId()]; v != nil && v.node == req.GetNodeId() {
		v.node = ""
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (d *driver) ControllerExpandVolume(_ context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.findLocked(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size := req.GetCapacityRange().GetRequiredBytes()
	if size > largest {
		return nil, status.Errorf(codes.OutOfRange, "no volume has %d bytes", size)
	}
	v.size = max(v.size, size)
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.size, NodeExpansionRequired: true}, nil
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.findLocked(req.GetVolumeId()); err != nil {
		return nil, fmt.Errorf("validate: %w", err)
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: req.GetVolumeCapabilities()}}, nil
}

func (d *driver) findLocked(id string) (*volume, error) {
	v := d.mu.volumes[id]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	return v, nil
}
