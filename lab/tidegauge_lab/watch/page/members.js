// Members of a consumer group (KIP-848) on the stage while its partition has no records: a lane for each, with a box for
// each partition that it reads, has yet to give up, or waits for.
"use strict";

const memberLanes = new Map(); // member id -> lane
const MOST_MEMBER_LANES = 5;

const shortName = (member) => member.split("-")[0];

// The group that is shown: the first one of epochs whose members have partitions.
const stagedGroup = () => Object.values(view.groups).find((one) => Number.isInteger(one.assignmentEpoch) && one.partitions.length);

// Show members in place of logs without records; return whether it did.
function drawMemberLanes(isWanted) {
  const group = isWanted ? stagedGroup() : null;
  const members = group ? group.members.slice(0, MOST_MEMBER_LANES) : [];
  const wanted = members.map((one) => one.id).join();
  const list = byId("member-lanes");
  show(list, members.length > 0);
  if (list.dataset.members !== wanted) {
    list.dataset.members = wanted;
    memberLanes.clear();
    list.replaceChildren(...members.map(makeMemberLane));
  }
  for (const member of members) drawMemberLane(memberLanes.get(member.id), member);
  return members.length > 0;
}

function makeMemberLane(member) {
  const lane = { node: make("li", { class: "lane member-lane" }), epoch: make("span", { class: "lane-role" }), boxes: make("div", { class: "member-boxes" }), drawn: "" };
  lane.node.append(make("div", { class: "lane-who" }, make("b", {}, shortName(member.id)), lane.epoch), lane.boxes);
  memberLanes.set(member.id, lane);
  return lane.node;
}

function drawMemberLane(lane, member) {
  write(lane.epoch, phrase("memberEpoch", member.epoch));
  const drawn = JSON.stringify([member.partitions, member.revoking, member.awaits]);
  if (drawn === lane.drawn) return;
  lane.drawn = drawn;
  const box = (text, kind, words) => make("span", { class: `part ${kind}` }, make("b", {}, text), " ", make("small", {}, words));
  lane.boxes.replaceChildren(
    ...member.partitions.map((one) => (member.revoking.includes(one) ? box(one, "revoking", phrase("revoking")) : box(one, "owned", phrase("reads")))),
    ...member.awaits.map((one) => box(one.partition, "awaits", phrase("awaits", shortName(one.member)))),
  );
}
