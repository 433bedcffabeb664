# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/binary_gem"
require_relative "../support/bystander"
require_relative "../support/in_directory"

# memscope as a binary gem installs it: the directories that it has, and how it is loaded from there.
# rake battery:gems builds and installs the gem itself.
class BinaryGemTest < MemscopeTest
  include Bystander
  include InDirectory

  REASON = "this binary gem of memscope does not fit Ruby #{RUBY_VERSION} or the C library here, so install the " \
           "source gem, by gem install memscope --platform ruby (".freeze

  def setup
    super
    skip_under_sanitizer
  end

  def test_it_reads_itself_and_what_it_starts
    BinaryGem.plant(@directory)
    report = memscope("report", "--", RbConfig.ruby, "-e", "1")

    assert_predicate report, :success?, report
    assert_match(/The kernel says +[\d.]+ MiB/, report.err, report)
  end

  def test_it_copies_a_process_and_makes_one_listen
    BinaryGem.plant(@directory)
    running(RbConfig.ruby, "-W0", "-e", "puts; $stdout.flush; sleep") do |pid|
      heap = memscope("heap", "--pid", pid.to_s)
      attached = memscope("attach", "--pid", pid.to_s)
      profile = memscope("report", "--pid", pid.to_s)

      assert_includes heap.out, "memscope was not loaded", heap
      assert_match(/\Aprocess #{pid} listens/, attached.out, attached)
      assert_includes profile.out, "The kernel says", profile
      refute_includes profile.out, "memscope was not loaded"
    end
  end

  # A text is no library, as one for another C library is none.
  { "another Ruby" => { "3.0" => BinaryGem::EXTENSION }, "another C library" => { BinaryGem::OWN => __FILE__ } }
    .each do |what, extensions|
    define_method("test_one_for_#{what.tr(' ', '_')}_says_what_to_install") do
      BinaryGem.plant(@directory, extensions)
      report = memscope("report")

      assert_includes report.out.gsub(/\s+/, " "), REASON, report
    end
  end

  def test_the_extension_for_a_process_with_another_ruby
    library = BinaryGem.plant(@directory, BinaryGem::OWN => BinaryGem::EXTENSION, "3.0" => __FILE__)
    ran = ChildProcess.run_command(RbConfig.ruby, "-I#{library}", "-rmemscope", "-rmemscope/remote/copy", "-e",
                                   <<~RUBY)
                                     print Memscope.const_get(:Copy)::Extension.of(Process.pid, "3.0.6")
                                   RUBY

    assert_equal "#{library}/memscope/3.0/memscope.so", ran.out, ran
  end

  private

  def memscope(*arguments)
    ChildProcess.run_command(RbConfig.ruby, "-I#{@directory}/lib", "#{@directory}/exe/memscope", *arguments)
  end
end
