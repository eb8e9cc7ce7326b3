// SPDX-License-Identifier: MIT

// podsecurity reads Kubernetes objects in YAML from standard input and takes each as Kubernetes itself would: decoded
// strictly into its types (unknown and repeated members are mistakes), and each pod that they would make held against
// the Pod Security standard "restricted" by the policy code of Kubernetes (k8s.io/pod-security-admission).
// It prints a line for each object: "ok Kind/name", "ok Kind/name restricted" for one that makes pods, "unknown
// Kind/name" for one of a custom resource, or "bad Kind/name: why". Exit status 1 where one is bad, or where there
// was no pod at all, since that would prove nothing.
//
// The module that it is part of also pins helm and kubeconform (go.mod, go.sum); ./dev builds all three.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// The pod that an object would make, or nil where it makes none.
func podOf(object runtime.Object) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "podsecurity:", err)
		os.Exit(2)
	}
}

var decoder = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// The line for one object, whether it is good, and whether it makes pods.
func judge(text []byte, evaluator policy.Evaluator) (line string, good, pods bool) {
	var head metav1.PartialObjectMetadata
	fail(yaml.Unmarshal(text, &head))
	name := head.Kind + "/" + head.Name
	object, _, err := decoder.Decode(text, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		return "unknown " + name, true, false
	case err != nil:
		return fmt.Sprintf("bad %s: %v", name, err), false, false
	}
	pod := podOf(object)
	if pod == nil {
		return "ok " + name, true, false
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
	if !result.Allowed {
		return fmt.Sprintf("bad %s: %s", name, result.ForbiddenDetail()), false, true
	}
	return "ok " + name + " restricted", true, true
}

func main() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	fail(err)
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	status, seen := 0, false
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		fail(err)
		if !bytes.Contains(text, []byte("kind:")) {
			continue // a comment between two objects
		}
		line, good, pods := judge(text, evaluator)
		fmt.Println(line)
		seen = seen || pods
		if !good {
			status = 1
		}
	}
	if !seen {
		fmt.Println("bad: there is no pod")
		status = 1
	}
	os.Exit(status)
}
