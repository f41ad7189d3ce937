package device

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/device/checkpoint"
)

// load takes in what the agent before this one has written down. Resources have no devices until their
// plugins are back.
func (m *Manager) load() error {
	d, err := checkpoint.Read(m.o.Dir)
	if err != nil {
		return err
	}
	for name := range d.Registered() {
		m.mu.resources[name] = &resource{}
	}
	for _, e := range d.Entries() {
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, answer); err != nil {
			return fmt.Errorf("answer of the plugin of %s for container %s of pod %s: %w", e.ResourceName, e.ContainerName, e.PodUID, err)
		}
		uid := types.UID(e.PodUID)
		if m.mu.pods[uid] == nil {
			m.mu.pods[uid] = held{}
		}
		if m.mu.pods[uid][e.ContainerName] == nil {
			m.mu.pods[uid][e.ContainerName] = map[string]*allocation{}
		}
		m.mu.pods[uid][e.ContainerName][e.ResourceName] = &allocation{ids: idsOf(e.DeviceIDs), nodes: e.DeviceIDs, answer: answer}
	}
	return nil
}

// Save writes down which devices there are and who has them.
func (m *Manager) Save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	entries, registered, err := m.entries()
	if err != nil {
		return err
	}
	return checkpoint.New(entries, registered).Write(m.o.Dir)
}

func (m *Manager) entries() (entries []checkpoint.PodDevicesEntry, registered map[string][]string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	registered = map[string][]string{}
	for name, r := range m.mu.resources {
		registered[name] = []string{}
		for _, id := range slices.Sorted(maps.Keys(r.devices)) {
			if r.devices[id].Health == pluginapi.Healthy {
				registered[name] = append(registered[name], id)
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(m.mu.pods)) {
		for _, container := range slices.Sorted(maps.Keys(m.mu.pods[uid])) {
			of := m.mu.pods[uid][container]
			for _, name := range slices.Sorted(maps.Keys(of)) {
				if of[name].answer == nil {
					continue // it may be refused
				}
				answer, err := proto.Marshal(of[name].answer)
				if err != nil {
					return nil, nil, fmt.Errorf("encode answer of the plugin of %s: %w", name, err)
				}
				entries = append(entries, checkpoint.PodDevicesEntry{
					PodUID: string(uid), ContainerName: container, ResourceName: name, DeviceIDs: of[name].nodes, AllocResp: answer,
				})
			}
		}
	}
	return entries, registered, nil
}
