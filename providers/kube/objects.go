package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The objects of Kubernetes with only the fields that are read. An answer of a few bytes for each
// object would take a hundred times its size in memory as the full types.

// object is what is read of every object.
type object struct {
	Metadata struct {
		Name              string      `json:"name"`
		Namespace         string      `json:"namespace"`
		UID               string      `json:"uid"`
		CreationTimestamp metav1.Time `json:"creationTimestamp"`
		Annotations       struct {
			// Mirror is set for a static pod, which the kubelet runs by itself.
			Mirror *string `json:"kubernetes.io/config.mirror"`
		} `json:"annotations"`
		OwnerReferences list[metav1.OwnerReference] `json:"ownerReferences"`
	} `json:"metadata"`
}

type nodeObject struct {
	object

	Spec struct {
		Unschedulable bool               `json:"unschedulable"`
		Taints        list[corev1.Taint] `json:"taints"`
	} `json:"spec"`
	Status struct {
		NodeInfo   corev1.NodeSystemInfo      `json:"nodeInfo"`
		Conditions list[corev1.NodeCondition] `json:"conditions"`
	} `json:"status"`
}

type podObject struct {
	object

	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase corev1.PodPhase `json:"phase"`
	} `json:"status"`
}

type leaseObject struct {
	Spec struct {
		RenewTime *metav1.MicroTime `json:"renewTime"`
	} `json:"spec"`
}

// page is one page of a list of objects.
type page[T any] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items list[T] `json:"items"`
}

// list is a list of at most pageSize elements. The number that a request asks for binds no API
// server, and the size of an answer does not bound what its elements take in memory.
type list[T any] []T

var errTooMany = fmt.Errorf("more than %d elements", pageSize)

// UnmarshalJSON implements json.Unmarshaler. It reads one element after the other, and none above
// the bound.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	*l = nil
	if string(raw) == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('[') {
		return errors.Join(err, errors.New("not a list"))
	}
	for dec.More() {
		if len(*l) == pageSize {
			return errTooMany
		}
		var one T
		if err := dec.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}
