# SPDX-License-Identifier: MIT
# One of all replicas at a time. What the answers mean: docs/reference/errors.md; how long one may work: docs/how-to/clients.md.
# A token of the service account is read each time: the kubelet renews it.
locks() {
  curl -sS --max-time 10 $REDLOCKD_CURL ${REDLOCKCTL_KEY_FILE:+-H "Authorization: Bearer $(cat "$REDLOCKCTL_KEY_FILE")"} -w '\n%{http_code}' "$@"
}
while :; do
  answer=$(locks "$REDLOCKD_URL/locks" -d '{"resource":"example/minutely","ttl_ms":30000}')
  case "$answer" in
  *201)
    token=$(printf %s "$answer" | sed -n 's/.*"token": *"\([0-9a-f]*\)".*/\1/p')
    echo "it is my turn"
    sleep "${WORK_S:-5}"
    locks -X DELETE -H "Lock-Token: $token" "$REDLOCKD_URL/locks/example/minutely"
    ;;
  *409) echo "somebody else is at it" ;;
  *) echo "not now: $answer" ;;
  esac
  sleep "$EVERY_S"
done
