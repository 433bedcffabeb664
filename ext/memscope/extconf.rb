# frozen_string_literal: true

# Probes headers and functions of this Ruby and this C library. Decides nothing about the allocator, which is
# only known in the running process (engine/malloc/allocator.h).

require "etc"
require "mkmf"

unless RUBY_ENGINE == "ruby" && RUBY_PLATFORM.include?("linux")
  # JRuby and TruffleRuby have no heap that this extension could read, and other systems than Linux no /proc. The gem
  # installs and loads, and reports the reason.
  File.write("Makefile", dummy_makefile($srcdir).join)
  exit
end

# mkmf itself would raise with a backtrace, and without a remedy.
unless have_devel?
  abort "memscope's source gem is compiled as it is installed, which needs a C compiler, make, and the headers of " \
        "Ruby and of the C library. Here, #{RbConfig::CONFIG['CC']} compiles nothing. Debian: apt install gcc make " \
        "libc6-dev ruby-dev. Alpine: apk add build-base ruby-dev linux-headers."
end

# Objects land flat in the build directory, so base names must be unique. An #include names its room:
# "kernel/process.h".
$srcs = Dir["**/*.c", base: $srcdir].map { |path| File.basename(path) }.sort
# Only on processors that engine/attach/machine.h knows can processes be attached to: on others, tracer.c says so.
unless %w[x86_64 aarch64].include?(RbConfig::CONFIG["host_cpu"])
  $srcs -= Dir["engine/attach/*.c", base: $srcdir].map { |path| File.basename(path) } - %w[tracer.c remote_file.c]
end
$VPATH.concat(Dir["{bindings,ruby,ruby/*,engine/*}/", base: $srcdir].sort.map { |room| "$(srcdir)/#{room.chomp('/')}" })
$INCFLAGS << " -I$(srcdir) -I$(srcdir)/engine"
# -Os: most of this code runs once per reading, and its pages are resident in every process that loads it. Code for
# each object of a heap is compiled with -O2 (depend). layout.ld needs a section for each function and variable.
$CFLAGS << " -std=c11 -Os -ffunction-sections -fdata-sections -fvisibility=hidden -Wall -Wextra -Wshadow " \
           "-Wstrict-prototypes -Wmissing-prototypes -Wundef -Wno-unused-parameter"
$warnflags = ""
# Ruby's headers warn under these flags, unless they are system headers.
$INCFLAGS.gsub!(/-I(\$\((?:arch_)?hdrdir\)\S*)/, '-isystem \1')
$CPPFLAGS << " -D_GNU_SOURCE"

# TLS descriptors: half the instructions of __tls_get_addr if dlopen finds room in the static TLS block. They are the
# default on aarch64. On x86_64, glibc before 2.40 clobbers vector registers where a thread's block is allocated late
# (sourceware bug 31372). musl does not, and has no __GLIBC_PREREQ.
safe_descriptors = try_compile(<<~C, "-mtls-dialect=gnu2")
  #include <limits.h>
  #ifdef __GLIBC__
  #if !__GLIBC_PREREQ(2, 40)
  #error
  #endif
  #endif
C
$CFLAGS << " -mtls-dialect=gnu2" if RbConfig::CONFIG["host_cpu"] == "x86_64" && safe_descriptors

# These flags put the pages that loading reads at the extension's beginning, and make it smaller: one segment for
# headers, constants and code, and packed relocations. With packed relocations, loading needs glibc 2.36 or newer. musl
# before 1.2.4 would ignore them and crash. A linker that lacks a flag fails or warns.
def add_linker_flag(flag, source = MAIN_DOES_NOTHING)
  $DLDFLAGS << " #{flag}" if checking_for(flag) { try_link(source, "-Wl,--fatal-warnings #{flag}") }
end

add_linker_flag("-Wl,-z,noseparate-code")
add_linker_flag("-Wl,-T,#{$srcdir}/layout.ld")
add_linker_flag("-Wl,-z,pack-relative-relocs", <<~C)
  #include <limits.h>
  #if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 36)
  #error
  #endif
  int main(void) { return 0; }
C

if ENV["MEMSCOPE_SANITIZE"]
  sanitizers = "-fsanitize=address,undefined -fno-omit-frame-pointer"
  $CFLAGS << " #{sanitizers} -g -O1"
  $LDFLAGS << " #{sanitizers}"
end

# All but rb_class_attached_object are in no public header (ruby_private.h declares them), so these are probed as
# symbols of this Ruby.
have_func("rb_objspace_each_objects")
have_func("rb_objspace_each_objects_without_setup")
have_func("rb_objspace_reachable_objects_from")
have_func("rb_objspace_marked_object_p")
have_func("rb_gc_object_metadata")
have_func("rb_obj_gc_flags")
have_func("rb_vm_lock_enter_body")
have_func("rb_ivar_generic_ivtbl_lookup")
have_func("rb_imemo_name")
have_func("rb_gc_obj_optimal_size")
have_func("rb_gc_obj_slot_size")
have_func("rb_class_attached_object")
have_func("rb_hash_stlike_foreach")
have_func("rb_shape_get_shape_by_id")
shape_tree = checking_for("rb_shape_tree") do
  try_link("extern const void *rb_shape_tree; int main(void) { return rb_shape_tree == 0; }")
end
$defs << "-DHAVE_RB_SHAPE_TREE" if shape_tree

have_func("rb_internal_thread_add_event_hook", "ruby/thread.h") # since 3.2
have_func("rb_postponed_job_preregister", "ruby/debug.h") # since 3.3
have_library("m", "log") # libruby links it already, explicit here for -Wl,--no-undefined

$cleanfiles << "record_structs.h"
create_header
create_makefile("memscope/memscope")
# RubyGems runs make without -j, which takes a minute on one processor.
File.write("Makefile", "MAKEFLAGS += -j#{[Etc.nprocessors, 4].min}\n", mode: "a")
