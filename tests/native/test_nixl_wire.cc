// Frames of the control stream, and what is refused of them.
#include "check.h"
#include "library/nixl/wire.h"

using namespace tcpx::nixl;

namespace {

// The reader with `bytes` in it.
FrameReader reader_of(const std::string& bytes) {
  FrameReader reader;
  memcpy(reader.room(bytes.size()), bytes.data(), bytes.size());
  reader.filled(bytes.size());
  return reader;
}

std::string a_write() {
  TransferFrame frame;
  frame.id = 7;
  frame.is_inline = frame.notifies = true;
  frame.notification = "done";
  frame.segments = {{1, 2, 3}, {4, 5, 6}};
  std::string out;
  memcpy(write_transfer(out, FrameType::kWrite, frame, 9), "ABCDEFGHI", 9);
  return out;
}

ConnectionInfo an_info() {
  ConnectionInfo info;
  info.terms = {"softtcpx", 2, 512 << 10, 32 << 10, 256 << 10};
  memset(info.token.bytes, 3, sizeof(info.token.bytes));
  info.machine = "here";
  info.port = 4711;
  info.addresses = {"10.0.0.1", "::1"};
  return info;
}

}  // namespace

TEST(a_transfer_comes_out_as_it_went_in_byte_by_byte) {
  FrameReader reader;
  Frame frame;
  for (const char byte : a_write()) {
    CHECK(!reader.next(frame));
    *reader.room(1) = byte;
    reader.filled(1);
  }
  CHECK(reader.next(frame));
  const TransferFrame read = read_transfer(frame.body);
  CHECK_EQ(read.id, 7u);
  CHECK(read.is_inline && read.notifies && !read.stages);
  CHECK_EQ(read.notification, "done");
  CHECK_EQ(read.segments.size(), 2u);
  CHECK_EQ(read.segments[1].offset, 5u);
  CHECK_EQ(read.payload, "ABCDEFGHI");
}

TEST(every_end_that_comes_early_is_refused) {
  const std::string body = a_write().substr(kHeaderBytes);
  for (size_t length = 0; length < body.size() - 9; ++length) {
    CHECK_THROWS(read_transfer(body.substr(0, length)), WireError, "");
  }
}

TEST(a_frame_of_another_protocol_version_or_length_is_refused) {
  Frame frame;
  std::string other = a_write();
  other[0] = 'x';
  CHECK_THROWS(reader_of(other).next(frame), WireError, "no frame of this protocol");
  other = a_write();
  other[4] = 9;
  CHECK_THROWS(reader_of(other).next(frame), WireError, "version 9, not 5");
  other = a_write();
  other[6] = 77;
  CHECK_THROWS(reader_of(other).next(frame), WireError, "the type of a frame is 77");
  other = a_write();
  other[15] = 1;
  CHECK_THROWS(reader_of(other).next(frame), WireError, "the length of a frame");
}

TEST(more_segments_than_a_frame_holds_are_refused_before_any_room_is_made) {
  TransferFrame frame;
  std::string out;
  write_transfer(out, FrameType::kRead, frame, 0);
  out[kHeaderBytes + 8 + 1 + 4 + 3] = 0x7f;  // the highest byte of their number
  CHECK_THROWS(read_transfer(std::string_view(out).substr(kHeaderBytes)), WireError,
               "the number of segments");
}

TEST(segments_of_2_to_the_64_bytes_are_refused) {
  TransferFrame frame;
  frame.segments = {{1, 0, UINT64_MAX}, {1, 0, 1}};
  std::string out;
  write_transfer(out, FrameType::kRead, frame, 0);
  CHECK_THROWS(read_transfer(std::string_view(out).substr(kHeaderBytes)), WireError, "2^64");
}

TEST(a_frame_longer_than_is_due_is_refused_before_it_is_there) {
  std::string out;
  write_text(out, FrameType::kHello, std::string(kMaxGreeting + 1, 'x'));
  Frame frame;
  FrameReader reader = reader_of(out.substr(0, kHeaderBytes));
  CHECK_THROWS(reader.next(frame, kMaxGreeting), WireError, "the length of a frame");
  CHECK(!reader.next(frame));  // which is within what is allowed later
}

TEST(a_proof_holds_for_one_secret_challenge_and_side_and_hides_what_is_secret) {
  const tcpx::Token secret{{1, 2, 3}}, challenge{{4, 5, 6}}, other{{7}};
  Greeting said;
  said.terms = an_info().terms;
  said.sender = "a";
  said.target = "b";
  said.path_info = "the secrets of the handles, which are longer than one block of a hash";
  std::string out;
  write_proven(out, FrameType::kHello, said, secret, challenge);
  const auto heard = [](const std::string& bytes, const tcpx::Token& of, const tcpx::Token& asked) {
    FrameReader reader = reader_of(bytes);
    Frame frame;
    CHECK(reader.next(frame));
    return read_proven(frame, of, asked);
  };
  CHECK(heard(out, secret, challenge).has_value());
  CHECK_EQ(heard(out, secret, challenge)->path_info, said.path_info);
  CHECK_EQ(heard(out, secret, challenge)->sender, "a");
  CHECK(out.find("secrets") == std::string::npos);
  CHECK(out.find(std::string(reinterpret_cast<const char*>(secret.bytes), 16)) ==
        std::string::npos);
  CHECK(!heard(out, other, challenge));
  CHECK(!heard(out, secret, other));
  std::string welcome = out;
  welcome[6] = static_cast<char>(FrameType::kWelcome);
  CHECK(!heard(welcome, secret, challenge));
  for (size_t at = kHeaderBytes; at < out.size(); ++at) {
    std::string changed = out;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK(!heard(changed, secret, challenge));
  }
}

TEST(connection_info_comes_out_as_it_went_in) {
  const ConnectionInfo read = read_connection_info(write_connection_info(an_info()));
  CHECK_EQ(read.terms.plugin, "softtcpx");
  CHECK_EQ(read.port, 4711);
  CHECK_EQ(read.addresses.size(), 2u);
  CHECK_EQ(read.addresses[1], "::1");
  CHECK(tcpx::same_token(read.token, an_info().token));
}

TEST(connection_info_that_is_cut_off_or_of_another_kind_is_refused) {
  const std::string whole = write_connection_info(an_info());
  for (size_t length = 0; length < whole.size(); ++length) {
    CHECK_THROWS(read_connection_info(whole.substr(0, length)), WireError, "");
  }
  CHECK_THROWS(read_connection_info(whole + "x"), WireError, "1 bytes too many");
  CHECK_THROWS(read_connection_info(write_region_info({1, 2, 3, 0})), WireError,
               "no connection info");
  CHECK_THROWS(read_region_info(whole), WireError, "no metadata");
}

TEST(a_region_beyond_the_end_of_all_addresses_is_refused) {
  CHECK_THROWS(read_region_info(write_region_info({1, UINT64_MAX - 5, 6, 0})), WireError,
               "the length of a region");
}

CHECK_MAIN()
