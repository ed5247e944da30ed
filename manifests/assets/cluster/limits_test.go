package cluster_test

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the apiserver does in the background is looked at this often and this long: a limit for machines that are very
// busy.
const (
	waitLimit = time.Minute
	waitEvery = 50 * time.Millisecond
)

func policyBinding(name string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
