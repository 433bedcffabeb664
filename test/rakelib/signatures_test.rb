# frozen_string_literal: true

require_relative "../test_helper"

class SignaturesTest < MemscopeTest
  def setup
    skip "yard is in no bundle" if ChildProcess::WITHOUT_BUNDLE
    require "rake"
    Rake.load_rakefile(File.join(ChildProcess::ROOT, "rakelib/signatures.rake")) unless defined?(Signatures)
  end

  def test_the_signatures_of_fields_are_current
    assert_equal Signatures.generate, File.read(File.join(ChildProcess::ROOT, Signatures::FILE)), "run rake sig"
  end
end
